"""Independent readings of a node: its denotation, its plain eager call, and the tolerance."""
