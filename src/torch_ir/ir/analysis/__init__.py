"""Analyses of a program without a run: layouts, costs, fingerprints."""
