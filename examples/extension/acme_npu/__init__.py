"""A device of a company that nobody knows, and what torch-ir has to know of it."""
