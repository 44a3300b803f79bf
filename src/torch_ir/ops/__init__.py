"""What is known of an operator, each fact once: no torch, no IR."""
