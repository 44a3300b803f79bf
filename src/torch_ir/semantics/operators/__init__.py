"""Denotations of operators, one file per family; importing a file registers its own."""
