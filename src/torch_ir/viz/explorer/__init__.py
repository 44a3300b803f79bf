"""The extension of Model Explorer that opens .tir files; it alone imports ``main``."""
