"""What a traced function depends on beside its arguments, and whether it changed."""
