"""Facts about operators, each in one place: no torch, no IR."""
