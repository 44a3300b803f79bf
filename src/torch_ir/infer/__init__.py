"""Inference of what a call gives: its arguments, its results, and the storage they share."""
