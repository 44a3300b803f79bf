"""Operators that only a target knows."""
