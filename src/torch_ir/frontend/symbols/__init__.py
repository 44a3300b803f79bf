"""Symbolic sizes and numbers: arithmetic, guards, runtime asserts and names."""
