"""Numerics, defined once and bit for bit: formats, the bank unit, the vector unit. Normative text: docs/numerics.md."""
