"""Bounds of linear algebra: equations, factors of matrices, and what holds between them."""
