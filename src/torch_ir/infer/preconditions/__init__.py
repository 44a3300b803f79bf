"""Preconditions of kernels that trust their caller."""
