"""Gradients of compiled graphs."""
