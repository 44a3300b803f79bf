"""Conformance of backends: every operator, dtype and shape that they say they run, judged."""
