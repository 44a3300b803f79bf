"""Runtimes beside torch: each a module that is imported only when it is asked for."""
