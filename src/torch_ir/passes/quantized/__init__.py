"""Quantized operators in the place of dequantize, operator, quantize."""
