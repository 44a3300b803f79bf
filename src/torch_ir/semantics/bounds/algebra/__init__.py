"""Bounds of linear algebra: equations, factors of matrices, what holds between them, products."""
