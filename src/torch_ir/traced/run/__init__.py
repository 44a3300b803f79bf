"""Runs of traced programs on the executors that the caller asked for."""
