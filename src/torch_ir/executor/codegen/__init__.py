"""Generated Python: a plan of calls as the source that runs it."""
