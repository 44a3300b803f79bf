"""Bounds of what only training calls: gradients of samples, attention and learned codes."""
