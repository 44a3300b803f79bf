"""Distinct calls of programs: every operator with its shapes, dtypes and attributes, as tests."""
