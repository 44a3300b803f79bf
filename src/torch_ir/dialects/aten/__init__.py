"""ATen: what torch.export gives, made functional, and reduced to the core set."""
