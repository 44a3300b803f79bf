"""Models that are built to be extracted: without weights, and from configuration files."""
