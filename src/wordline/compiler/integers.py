"""Arithmetic on sizes: division rounded up, multiples, powers of two."""

from __future__ import annotations


def ceil_div(value: int, divisor: int) -> int:
    """``value / divisor`` rounded up to a whole number."""
    return -(-value // divisor)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is not below ``value``."""
    return ceil_div(value, multiple) * multiple


def is_power_of_two(value: int) -> bool:
    """Whether ``value`` is 1, 2, 4, ..."""
    return value > 0 and value & (value - 1) == 0


def floor_log2(value: int) -> int:
    """The exponent of the largest power of two up to ``value``, which is at least 1."""
    return value.bit_length() - 1
