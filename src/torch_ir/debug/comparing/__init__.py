"""Comparison of two readers of one program, node by node, whatever runs it."""
