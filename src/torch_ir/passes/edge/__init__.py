"""The passes that bring core ATen into the Edge dialect."""
