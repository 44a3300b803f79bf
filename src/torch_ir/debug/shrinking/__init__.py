"""Failing programs made small, and lists of passes searched for the one that breaks a program."""
