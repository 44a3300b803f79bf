"""Gradients that a model defines itself, by ``torch.autograd.Function``."""
