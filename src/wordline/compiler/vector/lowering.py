"""A group of results to passes: the walk from results to memory, the iteration space, the loops around the pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import cast

from wordline.compiler.integers import round_up
from wordline.compiler.kernel.passes import PassItem, PassLoop, ReductionKind, ScalarSource, SharedScalar
from wordline.compiler.kernel.scratch import ScratchTensor
from wordline.compiler.kernel.symbols import Linear, Register, SharedRegister, linear
from wordline.compiler.vector.builder import PassBuilder, PassValue
from wordline.compiler.vector.cost import passes_cycles
from wordline.compiler.vector.expression import Node, scalar_source
from wordline.compiler.vector.space import Divided, Form, NotAffine, Space, merge, row_major
from wordline.isa.affine import MAX_TERMS, STRIDE_RANGE
from wordline.isa.controller.vector import LAYOUT
from wordline.machines.machine import Machine

MAX_UNROLLED = 64
"""A loop whose address steps do not fit an instruction is written out up to this many times (bounds the code size)."""

_STRIDE_BITS = {bits.name: bits.width for bits in LAYOUT.bits}

Stored = Mapping[Node, ScratchTensor | ScalarSource]


def place(node: Node, stored: Stored) -> ScratchTensor | ScalarSource | None:
    """Where the value of ``node`` can be read; None when it has to be computed."""
    where = stored.get(node)
    if where is None and node.kind == "tensor":
        where = cast(ScratchTensor, node.detail)
    return scalar_source(node) if where is None and node.kind == "scalar" else where


class Infeasible(Exception):  # noqa: N818  # a result of the search, not an error
    """The group is no single pass.

    ``culprits``: expressions that would have to be in memory first (empty: any may help); ``excess``: by how much the
    limits of a pass are exceeded.
    """

    def __init__(self, culprits: Iterable[Node] = (), excess: int = 0) -> None:
        super().__init__()
        self.culprits = tuple(culprits)
        self.excess = excess


@dataclass(frozen=True, slots=True)
class Store:
    """``node`` written to ``target``, as the part that begins at index ``start`` of a whole of extents ``shape``.

    ``pad``: elements of the target past its last meaningful one become zero.
    """

    node: Node
    target: ScratchTensor
    shape: tuple[int, ...]
    start: tuple[int, ...]
    pad: bool

    @property
    def body(self) -> Node:
        return self.node


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction node: one row goes to ``register``, several rows go through it to ``target``, one element each."""

    node: Node
    register: SharedRegister
    target: ScratchTensor | None

    @property
    def body(self) -> Node:
        return self.node.args[0]


Result = Store | Reduction


@dataclass(frozen=True, slots=True)
class LoweredGroup:
    """Passes of a group and what they cost in cycles."""

    items: tuple[PassItem, ...]
    cycles: int


@dataclass
class _Load:
    tensor: ScratchTensor
    form: Form
    rotated: int | None
    """The digit along which halves are exchanged."""


@dataclass
class _Walk:
    """Everything between results and memory, for one space."""

    space: Space
    stored: Stored
    loads: list[_Load] = field(default_factory=list)
    memo: dict[object, tuple[str, object]] = field(default_factory=dict)
    operations: list[tuple[str, tuple[tuple[str, object], ...]]] = field(default_factory=list)

    def value(self, node: Node, index: Form) -> tuple[str, object]:
        """The value of ``node`` at flat ``index``: ("load", slot), ("scalar", node) or ("op", slot)."""
        key = (node, index)
        if key not in self.memo:
            self.memo[key] = self._value(node, index)
        return self.memo[key]

    def _value(self, node: Node, index: Form) -> tuple[str, object]:
        where = place(node, self.stored)
        if isinstance(where, ScratchTensor):
            return self._load(node, where, index, None)
        if where is not None:
            return "scalar", node
        if node.kind == "op":
            entry = (str(node.detail), tuple(self.value(arg, index) for arg in node.args))
            if entry not in self.operations:
                self.operations.append(entry)
            return "op", self.operations.index(entry)
        if node.kind == "rotate":
            return self._rotated(node, index)
        return self.value(node.args[0], self._through(node, index))

    def _through(self, node: Node, index: Form) -> Form:
        """The flat index into the operand of a view."""
        (x, *_), space = node.args, self.space
        if node.kind == "reshape":
            return index
        if node.kind in ("reduce", "concat"):
            raise Infeasible([node])
        try:
            forms = space.split(index, node.shape)
        except NotAffine:
            raise Infeasible([x]) from None
        if node.kind == "broadcast":
            kept = forms[len(node.shape) - len(x.shape) :]
            weights = [weight if extent > 1 else 0 for weight, extent in zip(row_major(x.shape), x.shape, strict=True)]
            return space.join(kept, weights)
        if node.kind == "transpose":
            weights = [row_major(x.shape)[axis] for axis in cast(tuple[int, ...], node.detail)]
            return space.join(forms, weights)
        assert node.kind == "slice"
        axis, start = cast(tuple[int, int], node.detail)
        return space.join(forms, row_major(x.shape), start * row_major(x.shape)[axis])

    def _load(self, node: Node, tensor: ScratchTensor, index: Form, rotated: int | None) -> tuple[str, object]:
        try:
            form = address(self.space, tensor, index)
        except NotAffine:
            raise Infeasible([node]) from None
        load = _Load(tensor, form, rotated)
        if load not in self.loads:
            self.loads.append(load)
        return "load", self.loads.index(load)

    def _rotated(self, node: Node, index: Form) -> tuple[str, object]:
        (x,) = node.args
        try:
            last = self.space.split(index, node.shape)[-1]
        except NotAffine:
            raise Infeasible([x, node]) from None
        digit = last[1][0][0] if len(last[1]) == 1 else None
        if digit is None or last != (0, ((digit, 1),)) or self.space.extents[digit] != node.shape[-1]:
            raise Infeasible([node])
        origin = x
        while origin.kind in ("reshape", "transpose", "slice", "broadcast") and origin not in self.stored:
            index = self._through(origin, index)
            origin = origin.args[0]
        where = place(origin, self.stored)
        if not isinstance(where, ScratchTensor):
            raise Infeasible([x])
        return self._load(x, where, index, digit)


def address(space: Space, tensor: ScratchTensor, index: Form) -> Form:
    """Byte offset from the start of the tensor's buffer on channel 0. Raises ``NotAffine`` or ``Divided``."""
    forms = space.split(index, [extent for extent, _ in tensor.dims])
    return space.join(forms, [stride for _, stride in tensor.dims], tensor.offset)


def lower(machine: Machine, results: Sequence[Result], stored: Stored, loop: str) -> LoweredGroup:
    """Passes that compute ``results`` together from what is in memory. ``loop`` prefixes the names of loop registers.

    Raises:
        Infeasible: they do not share an iteration, or no pass of this shape can compute them.
    """
    size = results[0].body.size
    lengths = {r.body.shape[-1] for r in results if isinstance(r, Reduction) and r.node.size > 1}
    if any(r.body.size != size for r in results) or len(lengths) > 1:
        raise Infeasible
    if lengths and any(isinstance(r, Reduction) and r.node.size == 1 for r in results):
        raise Infeasible
    stores = [r for r in results if isinstance(r, Store)]
    if len(stores) > 1:
        raise Infeasible
    lowering = _Lowering(machine, results, stored, loop, lengths.pop() if lengths else None)
    candidates, failure = [], Infeasible()
    for extent in _extents(stores, results, stored):
        try:
            items = lowering.passes(0, extent, size if extent > size else None)
        except Infeasible as reason:
            failure = reason if extent == size else failure
            continue
        candidates.append(_padded(machine, stores, items, extent))
    if not candidates and len(stores) == len(results):
        cut = _ragged_cut(stores[0], stored)
        if cut is None:
            raise failure
        try:
            items = lowering.passes(0, cut, None) + lowering.passes(cut, size - cut, None)
        except Infeasible:
            raise failure from None
        candidates.append(_padded(machine, stores, items, size))
    if not candidates:
        raise failure
    return min(candidates, key=lambda lowered: lowered.cycles)


def _leaves(node: Node, stored: Stored) -> Iterable[ScratchTensor]:
    seen: set[Node] = set()
    stack = [node]
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        where = place(at, stored)
        if isinstance(where, ScratchTensor):
            yield where
        elif where is None:
            stack.extend(at.args)


def _extents(stores: Sequence[Store], results: Sequence[Result], stored: Stored) -> list[int]:
    """Sizes of the iteration to try: exact, or longer with a masked tail (padding to be zeroed, ragged shards)."""
    size = results[0].body.size
    extents = {size}
    room = min((s.target.capacity for s in stores if s.shape == s.node.shape), default=None)
    if stores and room is None:
        return [size]
    if room is not None:
        extents |= {room} if stores[0].pad else set()
    for result in results:
        for tensor in _leaves(result.body, stored):
            if len(tensor.dims) > 1 and tensor.elements == size:
                inner = prod(extent for extent, _ in tensor.dims[1:])
                extents.add(round_up(size, inner))
    for store in stores:
        if len(store.target.dims) > 1:
            inner = prod(extent for extent, _ in store.target.dims[1:])
            extents.add(round_up(size, inner))
    return sorted(extent for extent in extents if room is None or extent <= room)


def _ragged_cut(store: Store, stored: Stored) -> int | None:
    """Where the last, partly filled shard of a tensor under the store begins."""
    size = store.node.size
    for tensor in (*_leaves(store.node, stored), store.target):
        if len(tensor.dims) > 1 and tensor.elements == size:
            inner = prod(extent for extent, _ in tensor.dims[1:])
            cut = size // inner * inner
            if 0 < cut < size:
                return cut
    return None


def _padded(machine: Machine, stores: Sequence[Store], items: tuple[PassItem, ...], covered: int) -> LoweredGroup:
    """``items``, and a pass that zeroes what padding the store has not covered."""
    for store in stores:
        target, first = store.target, max(covered, store.target.elements)
        if store.pad and first < target.capacity:
            stride = target.dims[0][1]
            fill = PassBuilder(machine, (1, target.capacity - first, 1))
            fill.store(
                fill.scalar(0.0),
                target.buffer,
                target.offset + first * stride,
                (0, stride, 0),
                target.dtype,
                every_channel=target.replicated,
            )
            items = (*items, fill.build())
    return LoweredGroup(items, passes_cycles(machine, items))


@dataclass
class _Lowering:
    machine: Machine
    results: Sequence[Result]
    stored: Stored
    loop: str
    row_length: int | None

    def passes(self, first: int, extent: int, high: int | None) -> tuple[PassItem, ...]:
        """Passes over elements ``first .. first + extent`` of the results, valid below ``high``."""
        space = Space(extent, padded=high is not None)
        while True:
            walk = _Walk(space, self.stored)
            try:
                index = space.flat(first)
                if self.row_length is not None:
                    rows = extent // self.row_length
                    if high is not None:
                        raise Infeasible
                    space.split(index, (rows, self.row_length))
                values = [walk.value(result.body, index) for result in self.results]
                targets = [self._target(space, r, index) for r in self.results if isinstance(r, Store)]
                break
            except Divided:
                continue
        return _Emission(self, walk, values, targets, high).items()

    def _target(self, space: Space, store: Store, index: Form) -> Form:
        try:
            if store.shape != store.node.shape:
                forms = space.split(index, store.node.shape)
                weights = row_major(store.shape)
                index = space.join(forms, weights, sum(s * w for s, w in zip(store.start, weights, strict=True)))
            return address(space, store.target, index)
        except NotAffine:
            raise Infeasible from None


@dataclass
class _Emission:
    """Loops around the pass and the pass itself, once every index is an affine form of the digits."""

    lowering: _Lowering
    walk: _Walk
    values: list[tuple[str, object]]
    targets: list[Form]
    high: int | None

    def items(self) -> tuple[PassItem, ...]:
        space, length = self.walk.space, self.lowering.row_length
        rotations = {load.rotated for load in self.walk.loads if load.rotated is not None}
        forms = [load.form for load in self.walk.loads] + self.targets
        self.reductions = [r for r in self.lowering.results if isinstance(r, Reduction)]
        if len(rotations) > 1 or (rotations and space.order[-1] not in rotations):
            raise Infeasible([])
        rotated = next(iter(rotations), None)
        outer_digits, weight = len(space.order), 1
        while length is not None and weight < length:
            outer_digits -= 1
            weight *= space.extents[space.order[outer_digits]]
        if length is None:
            outer_digits = 0
        rows = merge(space.order[:outer_digits], space.extents, forms)
        loops = merge(space.order[outer_digits:], space.extents, forms, rotated)
        outer, inner = self._fit(loops, rotated is not None)
        bases = [linear(form[0]) for form in forms] + [linear(0)]
        steps = [
            (extent, coefficients, prod(e for e, _ in rows[at + 1 :])) for at, (extent, coefficients) in enumerate(rows)
        ]
        steps += [(extent, coefficients, 0) for extent, coefficients in outer]
        return self._nest(steps, inner, bases, 1)

    def _fit(
        self, loops: list[tuple[int, list[int]]], rotated: bool
    ) -> tuple[list[tuple[int, list[int]]], list[tuple[int, list[int]]]]:
        """Divide the loops into loops around the pass and the (at most three) extents of the pass."""
        ordered = bool(self.reductions) or self.high is not None or rotated

        def fits(inner: list[tuple[int, list[int]]]) -> bool:
            names = ("s0", "s1", "s2")[3 - len(inner) :]
            return all(
                -(1 << _STRIDE_BITS[name] - 1) <= step < 1 << _STRIDE_BITS[name] - 1
                for name, (_, steps) in zip(names, inner, strict=True)
                for step in steps
            )

        still = (1, [0] * (len(self.walk.loads) + len(self.targets)))
        for count in range(max(0, len(loops) - 3), len(loops) + 1):
            if count and (self.reductions or self.high is not None):
                break
            outer, inner = loops[:count], loops[count:]
            choices = [inner]
            if not ordered:
                choices += [[*inner[:at], *inner[at + 1 :], inner[at]] for at in range(len(inner) - 1)]
            if len(inner) < 3 and not rotated:
                choices.append([*inner, still])
            for choice in choices:
                if fits(choice) and not (rotated and not choice):
                    return outer, choice
        raise Infeasible

    def _nest(
        self,
        loops: list[tuple[int, list[int], int]],
        inner: list[tuple[int, list[int]]],
        bases: list[Linear],
        unrolled: int,
    ) -> tuple[PassItem, ...]:
        if not loops:
            return self._body(inner, bases)
        (extent, coefficients, row_step), *rest = loops
        steps = [*coefficients, row_step]
        encodable = all(STRIDE_RANGE[0] <= step <= STRIDE_RANGE[1] for step in steps)
        if encodable and all(len(base.terms) < MAX_TERMS for base in bases):
            register = Register(f"{self.lowering.loop}_{len(loops)}")
            moved = [base + linear(register) * step for base, step in zip(bases, steps, strict=True)]
            return (PassLoop(register, linear(extent), self._nest(rest, inner, moved, unrolled)),)
        if extent * unrolled > MAX_UNROLLED:
            raise Infeasible
        items: tuple[PassItem, ...] = ()
        for at in range(extent):
            moved = [base + at * step for base, step in zip(bases, steps, strict=True)]
            items += self._nest(rest, inner, moved, unrolled * extent)
        return items

    def _body(self, inner: list[tuple[int, list[int]]], bases: list[Linear]) -> tuple[PassItem, ...]:
        machine = self.lowering.machine
        b = PassBuilder(machine, [extent for extent, _ in inner], high=self.high)
        loads = [
            b.load(
                load.tensor.buffer,
                bases[slot],
                [steps[slot] for _, steps in inner],
                load.tensor.dtype,
                rotate=load.rotated is not None,
            )
            for slot, load in enumerate(self.walk.loads)
        ]
        operations: list[PassValue] = []

        def value(reference: tuple[str, object]) -> PassValue:
            kind, what = reference
            if kind == "scalar":
                assert isinstance(what, Node)
                source = place(what, self.walk.stored)
                assert source is not None
                assert not isinstance(source, ScratchTensor)
                return b.scalar(source)
            assert isinstance(what, int)
            return loads[what] if kind == "load" else operations[what]

        for name, sources in self.walk.operations:
            operations.append(b.apply(name, *map(value, sources)))
        after: list[PassItem] = []
        for result, reference in zip(self.lowering.results, self.values, strict=True):
            if isinstance(result, Store):
                slot, target = len(loads), result.target
                strides = [steps[slot] for _, steps in inner]
                replicated = target.replicated
                b.store(value(reference), target.buffer, bases[slot], strides, target.dtype, every_channel=replicated)
            else:
                b.reduce(cast(ReductionKind, result.node.detail), value(reference), result.register)
                if result.target is not None:
                    after.append(self._row_result(result, result.target, bases[-1]))
        if b.excess():
            raise Infeasible(excess=b.excess())
        return (b.build(), *after)

    def _row_result(self, result: Reduction, target: ScratchTensor, row: Linear) -> PassItem:
        b = PassBuilder(self.lowering.machine, (1,))
        value = b.scalar(SharedScalar(result.register, integer=result.node.detail == "argmax"))
        offset = row * target.element_bytes + target.offset
        b.store(value, target.buffer, offset, (0,), target.dtype, every_channel=target.replicated)
        return b.build()
