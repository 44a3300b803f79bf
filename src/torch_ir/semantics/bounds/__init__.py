"""Rules that bound the rounding error of each element of an operator's results."""
