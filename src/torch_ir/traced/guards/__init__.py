"""Guards of a traced function on what it depends on beside its arguments."""
