"""Layers that repeat, traced once each."""
