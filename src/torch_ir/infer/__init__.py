"""What a call of an operator gives: arguments bound, and operators run without data."""
