"""A second, plain interpreter of CRF programs: one lane of one block at a time, with Python's own numbers.

Written from the rules of docs/hbm2-pim.md, apart from ``wordline.sim.hbm2_pim``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

LANES = 16
LARGEST = Fraction(65504)


def round_half(value: Fraction, negative_zero: bool) -> float:
    """The nearest fp16 value, ties to even, as a float."""
    if value == 0:
        return -0.0 if negative_zero else 0.0
    magnitude = abs(value)
    exponent = max(math.floor(math.log2(magnitude)) if magnitude else -14, -14)
    while magnitude < Fraction(2) ** exponent and exponent > -14:
        exponent -= 1
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - 10)
    quotient = magnitude / unit
    whole = quotient.numerator // quotient.denominator
    rest = quotient - whole
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2):
        whole += 1
    rounded = whole * unit
    result = math.inf if rounded > LARGEST else float(rounded)
    return -result if value < 0 else result


def add(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or math.isinf(b):
        return a + b
    both_negative = math.copysign(1, a) < 0 and math.copysign(1, b) < 0
    return round_half(Fraction(a) + Fraction(b), both_negative)


def mul(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or math.isinf(b):
        return a * b
    return round_half(Fraction(a) * Fraction(b), math.copysign(1, a) * math.copysign(1, b) < 0)


def relu(a: float) -> float:
    return a if math.isnan(a) or a > 0 else 0.0


class PlainBlock:
    """One lane of one block. An instruction is (name, fields); operands have the numbers of the encoding."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.registers = [0.0] * 32  # GRF_A, GRF_B, SRF_M, SRF_A
        self.program: Sequence[tuple[str, dict[str, int]]] = []
        self.position, self.done, self.jumps = 0, 0, -1

    def start(self, program: Sequence[tuple[str, dict[str, int]]]) -> None:
        self.program, self.position, self.done, self.jumps = program, 0, 0, -1

    def trigger(self, row: int, column: int, value: float) -> None:
        name, f = self.program[self.position]
        while name == "JUMP":
            if self.jumps < 0:
                self.jumps = f["count"]
            if self.jumps > 0:
                self.jumps -= 1
                self.position = f["target"]
            else:
                self.jumps = -1
                self.position += 1
            name, f = self.program[self.position]
        aligned = bool(f.get("aam", 0))
        length = {"NOP": f.get("n", 0) + 1, "FILL": 8}.get(name, 8 if aligned else 1)
        if name != "NOP":
            self.operate(name, f, aligned, row, column, value)
        self.done += 1
        if self.done == length:
            self.done, self.position = 0, self.position + 1

    def operate(self, name: str, f: dict[str, int], aligned: bool, row: int, column: int, value: float) -> None:
        def source(key: str) -> float:
            number = f[key]
            if number >= 32:
                return value
            if aligned:
                slow = (row * self.columns + column) // 8 % 8
                in_product = name in ("MAC", "MAD") and key in ("a", "b")
                if number < 8:
                    number = slow if in_product else column % 8
                elif number < 16:
                    number = 8 + column % 8
                elif number < 24 and in_product:
                    number = 16 + slow
            return self.registers[number]

        target = f["dst"]
        if aligned:
            target = target // 8 * 8 + column % 8
        elif name == "FILL":
            target = target // 8 * 8 + self.done
        if name in ("MOV", "FILL"):
            result = relu(source("a")) if f.get("relu") else source("a")
        elif name == "ADD":
            result = add(source("a"), source("b"))
        elif name == "MUL":
            result = mul(source("a"), source("b"))
        elif name == "MAC":
            result = add(mul(source("a"), source("b")), self.registers[target])
        else:
            result = add(mul(source("a"), source("b")), source("c"))
        self.registers[target] = result
