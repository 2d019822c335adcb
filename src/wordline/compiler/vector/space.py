"""Iteration spaces and how a tensor's index follows from them.

The space of a pass starts as one flat index. Views divide it into digits (mixed radix) wherever a reshape, a shape or a
memory layout needs it; the common refinement of all operands is what remains when nothing more has to be divided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

Form = tuple[int, tuple[tuple[int, int], ...]]
"""An index ``constant + sum(coefficient * digit)``: the constant, then ``(digit, coefficient)`` with positive
coefficients, most significant digit first."""


class NotAffine(Exception):  # noqa: N818  # a result of the search, not an error
    """An index is no affine function of the digits."""


class Divided(Exception):  # noqa: N818  # a result of the search, not an error
    """A digit had to be divided; forms made before must be made again."""


@dataclass
class Space:
    """Digits of the flat index ``0 .. extent - 1``.

    Attributes:
        extent: number of elements.
        padded: the last elements are masked, so that an index may run past the end of the outermost axis.
        extents: extent of each digit, by number.
        order: digits, most significant first.
    """

    extent: int
    padded: bool = False
    extents: dict[int, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.extents = {0: self.extent}
        self.order = [0]

    def flat(self, first: int = 0) -> Form:
        """The flat index, plus ``first``."""
        terms, weight = [], 1
        for digit in reversed(self.order):
            if self.extents[digit] > 1:
                terms.append((digit, weight))
            weight *= self.extents[digit]
        return first, tuple(reversed(terms))

    def divide(self, digit: int, inner: int) -> None:
        """Replace a digit by two, the lower of extent ``inner``.

        Raises:
            NotAffine: ``inner`` does not divide the digit's extent.
            Divided: always otherwise.
        """
        extent = self.extents[digit]
        if inner <= 1 or extent % inner or inner == extent:
            raise NotAffine
        at, upper, lower = self.order.index(digit), len(self.extents), len(self.extents) + 1
        self.extents[upper], self.extents[lower] = extent // inner, inner
        self.order[at : at + 1] = [upper, lower]
        raise Divided

    def largest(self, form: Form) -> int:
        """The largest value of an index."""
        return form[0] + sum(coefficient * (self.extents[digit] - 1) for digit, coefficient in form[1])

    def split(self, index: Form, shape: Sequence[int]) -> tuple[Form, ...]:
        """The index of each axis of ``shape`` whose row-major flat index is ``index``.

        Raises:
            NotAffine: there is no affine answer.
            Divided: a digit was divided to get one.
        """
        axes = [axis for axis, extent in enumerate(shape) if extent > 1]
        weights = {axis: prod(shape[axis + 1 :]) for axis in axes}
        constants, rest = dict.fromkeys(range(len(shape)), 0), index[0]
        terms: dict[int, list[tuple[int, int]]] = {axis: [] for axis in range(len(shape))}
        for axis in axes:
            constants[axis], rest = divmod(rest, weights[axis])
        for digit, coefficient in index[1]:
            axis = next((axis for axis in axes if weights[axis] <= coefficient), -1)
            if axis < 0 or coefficient % weights[axis]:
                raise NotAffine
            step = coefficient // weights[axis]
            unbounded = axis == axes[0]
            if not unbounded and step * (self.extents[digit] - 1) >= shape[axis]:
                if shape[axis] % step:
                    raise NotAffine
                self.divide(digit, shape[axis] // step)
            terms[axis].append((digit, step))
        forms = tuple((constants[axis], tuple(terms[axis])) for axis in range(len(shape)))
        for axis in axes:
            if self.largest(forms[axis]) >= shape[axis] and not (self.padded and axis == axes[0]):
                raise NotAffine
        return forms

    @staticmethod
    def join(forms: Sequence[Form], weights: Sequence[int], start: int = 0) -> Form:
        """``start + sum(weight * form)``; a digit that occurs twice has its coefficients added."""
        constant, terms = start, dict[int, int]()
        for (offset, entries), weight in zip(forms, weights, strict=True):
            constant += offset * weight
            for digit, coefficient in entries:
                terms[digit] = terms.get(digit, 0) + coefficient * weight
        ordered = sorted(((d, c) for d, c in terms.items() if c), key=lambda term: -abs(term[1]))
        return constant, tuple(ordered)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Weight of each axis in the flat index."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def merge(
    order: Sequence[int], extents: Mapping[int, int], forms: Sequence[Form], apart: int | None = None
) -> list[tuple[int, list[int]]]:
    """The fewest loops that run through the digits: per loop its extent and the coefficient of each form.

    Two neighbouring digits become one where the upper steps exactly over the lower in every form. ``apart`` is a digit
    that stays a loop of its own (the axis of a rotation).
    """
    loops: list[tuple[int, list[int]]] = []
    tables = [dict(terms) for _, terms in forms]
    last: int | None = None
    for digit in order:
        extent = extents[digit]
        if extent == 1:
            continue
        steps = [table.get(digit, 0) for table in tables]
        if (
            loops
            and apart not in (digit, last)
            and all(a == b * extent for a, b in zip(loops[-1][1], steps, strict=True))
        ):
            loops[-1] = (loops[-1][0] * extent, steps)
        else:
            loops.append((extent, steps))
        last = digit
    return loops
