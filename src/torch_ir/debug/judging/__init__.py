"""The judgment of nodes and of delegates: what was read by whom, and where a backend errs."""
