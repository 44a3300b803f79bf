"""Regions under autocast in traced graphs."""
