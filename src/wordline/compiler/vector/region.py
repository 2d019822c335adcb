"""Vector code for a region of the graph: any mix of element-wise operations, reductions, views and concats.

There is no list of patterns. Results that must be in memory or in a register (what the caller demands, reductions, the
parts of a concat) are found first; everything else is recomputed where it is used. Results that run through the same
elements share a pass while the limits allow and the cost does not rise. What fits no pass is divided by putting an
inner value in scratch, and inner values are also put there when that makes the region cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wordline.compiler.kernel.passes import ScalarSource, SharedScalar, VectorBlock
from wordline.compiler.kernel.scratch import ScratchTensor, contiguous, sharded
from wordline.compiler.kernel.symbols import SharedRegister
from wordline.compiler.vector.expression import Expressions, Node, RegionInput, Shape, import_ops
from wordline.compiler.vector.lowering import Infeasible, LoweredGroup, Reduction, Result, Store, lower
from wordline.errors import WordlineError
from wordline.graph.ir import Op, Value
from wordline.machines.machine import Machine

Destination = ScratchTensor | SharedRegister

SHARD_FRACTION = 4
"""A temporary that takes more than one part in this many of channel 0's scratch is spread over the channels instead."""


@dataclass(frozen=True, slots=True)
class VectorCode:
    """Passes of a region.

    Attributes:
        block: the passes.
        temporaries: scratch tensors that live within the block.
        shared: shared registers that live within the block.
        cycles: what the block takes by the machine's cost rule.
    """

    block: VectorBlock
    temporaries: tuple[ScratchTensor, ...]
    shared: tuple[SharedRegister, ...]
    cycles: int


def compile_region(
    machine: Machine,
    name: str,
    ops: Sequence[Op],
    inputs: Mapping[Value, RegionInput],
    outputs: Sequence[tuple[Value, Destination]],
    bindings: Mapping[str, int] | None = None,
) -> VectorCode:
    """Vector code that computes ``outputs``.

    Args:
        machine: whose vector unit runs it.
        name: prefix of the names of temporaries, shared registers and loop registers.
        ops: operations of the region, in order; those that no output needs cost nothing.
        inputs: where the values lie that the region does not define: a scratch tensor (its flat index is the row-major
            index of the value), or for one element a number, a shared register or an int32 register of the stream.
        outputs: values and where they go; a value may go to several places. Padding of a one-digit destination becomes
            zero. A shared register takes a value of one element (argmax: as int32, all else: as float32).
        bindings: numbers for symbolic dimensions.

    Raises:
        WordlineError: "vector-op", an operation the unit cannot do; "vector-region", no passes were found.
    """
    if not machine.vector_unit.present:
        raise WordlineError(
            "no-vector-unit", f"machine {machine.name} has no vector unit", remedy="place the region on the host"
        )
    read = {where.buffer for where in inputs.values() if isinstance(where, ScratchTensor)}
    for value, where in outputs:
        if isinstance(where, ScratchTensor) and where.buffer in read:
            raise ValueError(f"{value} is to be written to {where}, which the region reads")
    expressions = Expressions()
    nodes = import_ops(expressions, ops, inputs, bindings or {})
    demands = [_Demand(_demanded(expressions, nodes[value], where), where) for value, where in outputs]
    return _Search(machine, name, expressions, demands).code()


@dataclass(frozen=True, slots=True)
class _Demand:
    node: Node
    where: Destination


@dataclass(frozen=True, slots=True)
class _Step:
    """A result to compute, and the node that is stored once it and its siblings (``parts`` in all) are done."""

    result: Result
    provides: Node | None
    parts: int = 1


@dataclass
class _Group:
    results: tuple[Result, ...]
    lowered: LoweredGroup
    steps: list[_Step]


@dataclass(frozen=True, slots=True)
class _Plan:
    groups: tuple[_Group, ...]
    cycles: int
    used: frozenset[Node]


@dataclass
class _Stuck(Exception):  # noqa: N818  # a result of the search, not an error
    """``step`` fits no pass with what ``stored`` holds."""

    step: _Step
    stored: dict[Node, ScratchTensor | ScalarSource]
    reason: Infeasible


def _demanded(expressions: Expressions, node: Node, where: Destination) -> Node:
    """The node to compute for a destination: order-preserving views do not matter for what is stored."""
    if isinstance(where, ScratchTensor) and node.kind == "scalar":
        return expressions.spread(node, (where.elements,))
    while node.kind == "reshape" or (
        node.kind in ("broadcast", "transpose", "slice") and node.size == 1 and node.args[0].size == 1
    ):
        node = node.args[0]
    if isinstance(where, ScratchTensor) and where.dtype == "bf16" and node.detail == "round_bf16":
        # The store rounds.
        return _demanded(expressions, node.args[0], where)
    if isinstance(where, SharedRegister) and node.kind == "scalar":
        node = expressions.spread(node, (1,))
    if isinstance(where, SharedRegister) and node.size != 1:
        raise ValueError(f"a shared register holds one element, got {node.shape}")
    return node


@dataclass
class _Search:
    machine: Machine
    name: str
    expressions: Expressions
    demands: Sequence[_Demand]
    places: dict[Node, ScratchTensor | ScalarSource] = field(default_factory=dict)
    detached: set[Node] = field(default_factory=set)
    """Nodes kept in a contiguous temporary because the place they are demanded in suits no pass."""
    _lowered: dict[object, LoweredGroup | Infeasible] = field(default_factory=dict)

    def code(self) -> VectorCode:
        extra: frozenset[Node] = frozenset()
        while True:
            try:
                plan = self._plan(extra)
                break
            except _Stuck as stuck:
                extra = extra | self._additions(stuck, extra)
        plan = self._improve(plan, extra)
        items = tuple(item for group in plan.groups for item in group.lowered.items)
        targets = {d.where.buffer for d in self.demands if isinstance(d.where, ScratchTensor)}
        block = VectorBlock(items)
        buffers = set(block.writes)
        temporaries = tuple(
            place
            for place in self.places.values()
            if isinstance(place, ScratchTensor) and place.buffer in buffers and place.buffer not in targets
        )
        demanded = {d.where for d in self.demands}
        shared = tuple(register for register in block.shared_written if register not in demanded)
        return VectorCode(block, temporaries, shared, plan.cycles)

    # --- what is stored where -----------------------------------------------------------------------------------------

    def _place(self, node: Node) -> ScratchTensor | ScalarSource:
        """Where a stored node lies; the same place in every plan."""
        if node not in self.places:
            where = self._demanded_place(node)
            if where is None and node.size == 1:
                integer = node.kind == "reduce" and node.detail == "argmax"
                where = SharedScalar(SharedRegister(f"{self.name}_s{node.number}"), integer)
            elif where is None:
                where = self._temporary(node)
            self.places[node] = where
        return self.places[node]

    def _demanded_place(self, node: Node) -> ScratchTensor | ScalarSource | None:
        for demand in self.demands:
            if demand.node is node and node.kind != "tensor" and node not in self.detached:
                if isinstance(demand.where, SharedRegister):
                    return SharedScalar(demand.where, node.kind == "reduce" and node.detail == "argmax")
                if demand.where.dtype == "f32" and _takes_parts(node, demand.where):
                    return demand.where
        return None

    def _temporary(self, node: Node) -> ScratchTensor:
        name = f"{self.name}_t{node.number}"
        tensor = contiguous(name, "f32", node.size)
        large = tensor.buffer.bytes_per_channel * SHARD_FRACTION > self.machine.scratch.bytes_per_channel
        spread = large and node.kind not in ("reduce", "concat") and node not in self.detached
        return sharded(name, self.machine, node.size, "f32") if spread else tensor

    def _detach(self, node: Node) -> bool:
        """Compute ``node`` into a plain vector and copy that to the place it is demanded in, from now on."""
        place = self._demanded_place(node)
        if not isinstance(place, ScratchTensor) or len(place.dims) == 1:
            return False
        self.detached.add(node)
        self.places.pop(node, None)
        self._lowered.clear()
        return True

    # --- the steps of a plan, in order --------------------------------------------------------------------------------

    def _steps(self, extra: frozenset[Node]) -> list[_Step]:
        stored = {demand.node for demand in self.demands if self._demanded_place(demand.node) is not None} | extra
        steps: list[_Step] = []
        visited: set[Node] = set()

        def need(node: Node) -> None:
            if node in visited:
                return
            visited.add(node)
            for arg in _operands(node):
                need(arg)
            if node in stored or node.kind in ("reduce", "concat"):
                steps.extend(self._definition(node))

        for demand in self.demands:
            node = demand.node
            in_parts = isinstance(demand.where, ScratchTensor) and _takes_parts(node, demand.where)
            if node.kind == "concat" and node not in stored and in_parts:
                # Written part by part to where it is demanded and nowhere else.
                for part in _operands(node):
                    need(part)
            else:
                need(node)
            if self._definitive(demand):
                continue
            if isinstance(demand.where, ScratchTensor):
                parts = [(node, (0,) * len(node.shape))] if node in visited else _parts(node)
                steps.extend(self._stores(node, parts, demand.where, None))
            else:
                steps.append(_Step(Reduction(self._held(demand.node), demand.where, None), None))
        return steps

    def _definitive(self, demand: _Demand) -> bool:
        """The demand is met by the place the node is kept in anyway."""
        place = self._demanded_place(demand.node)
        return place == demand.where or (isinstance(place, SharedScalar) and place.register == demand.where)

    def _definition(self, node: Node) -> list[_Step]:
        place = self._place(node)
        if isinstance(place, SharedScalar):
            return [_Step(Reduction(self._held(node), place.register, None), node)]
        assert isinstance(place, ScratchTensor)
        if node.kind == "reduce" and node.size > 1:
            register = SharedRegister(f"{self.name}_s{node.number}")
            return [_Step(Reduction(node, register, place), node)]
        return self._stores(node, _parts(node), place, node)

    def _held(self, node: Node) -> Node:
        """A reduction that leaves a value of one element in a shared register."""
        if node.kind == "reduce" and node.size == 1:
            return node
        return self.expressions.node("reduce", (node,), "max", node.shape)

    def _stores(
        self, node: Node, parts: Sequence[tuple[Node, Shape]], target: ScratchTensor, provides: Node | None
    ) -> list[_Step]:
        """Write ``node`` to ``target`` part by part; the last one is in charge of the padding."""
        pads = len(target.dims) == 1
        return [
            _Step(Store(part, target, node.shape, start, pads and at == len(parts) - 1), provides, len(parts))
            for at, (part, start) in enumerate(parts)
        ]

    # --- grouping -----------------------------------------------------------------------------------------------------

    def _plan(self, extra: frozenset[Node]) -> _Plan:
        groups: list[_Group] = []
        for step in self._steps(extra):
            stored = self._available(groups, len(groups))
            alone: LoweredGroup | None = None
            reason = Infeasible()
            try:
                alone = self._lower((step.result,), stored)
            except Infeasible as found:
                reason = found
            best: tuple[int, int, LoweredGroup] | None = None
            for at, group in enumerate(groups):
                if group.results[0].body.size != step.result.body.size:
                    continue
                try:
                    joined = self._lower((*group.results, step.result), self._available(groups, at))
                except Infeasible:
                    continue
                added = joined.cycles - group.lowered.cycles
                if best is None or added <= best[0]:
                    best = (added, at, joined)
            if best is not None and (alone is None or best[0] <= alone.cycles):
                _, at, joined = best
                groups[at] = _Group((*groups[at].results, step.result), joined, [*groups[at].steps, step])
            elif alone is not None:
                groups.append(_Group((step.result,), alone, [step]))
            else:
                raise _Stuck(step, stored, reason)
        used = frozenset(step.provides for group in groups for step in group.steps if step.provides is not None)
        return _Plan(tuple(groups), sum(group.lowered.cycles for group in groups), used)

    def _available(self, groups: Sequence[_Group], before: int) -> dict[Node, ScratchTensor | ScalarSource]:
        """What the groups before a position have stored, all its parts done."""
        counts: dict[Node, int] = {}
        stored: dict[Node, ScratchTensor | ScalarSource] = {}
        for group in groups[:before]:
            for step in group.steps:
                if step.provides is not None:
                    counts[step.provides] = counts.get(step.provides, 0) + 1
                    if counts[step.provides] == step.parts:
                        stored[step.provides] = self._place(step.provides)
        return stored

    def _lower(self, results: tuple[Result, ...], stored: dict[Node, ScratchTensor | ScalarSource]) -> LoweredGroup:
        below: set[Node] = set()
        for result in results:
            below |= _below(result.body, stored)
        key = (results, frozenset(node for node in stored if node in below))
        if key not in self._lowered:
            try:
                self._lowered[key] = lower(self.machine, results, stored, f"{self.name}_i{len(self._lowered)}")
            except Infeasible as reason:
                self._lowered[key] = reason
        found = self._lowered[key]
        if isinstance(found, Infeasible):
            raise found
        return found

    # --- what to put in scratch ---------------------------------------------------------------------------------------

    def _additions(self, stuck: _Stuck, extra: frozenset[Node]) -> frozenset[Node]:
        """Inner values to store so that a step which fits no pass becomes possible."""
        body, stored = stuck.step.result.body, stuck.stored
        fixed = {stuck.step.provides, *stored, *extra}
        named = frozenset(node for node in stuck.reason.culprits if node.kind != "scalar" and node not in fixed)
        if named:
            return named
        # What stands in the way may be the layout of a place that the caller chose.
        for node in stuck.reason.culprits:
            if self._detach(node):
                return frozenset([node])
        best: tuple[int, int, int] | None = None
        choice: Node | None = None
        for node in sorted(_below(body, stored), key=lambda n: n.number):
            if node.kind == "scalar" or node in fixed or _is_plain(node):
                continue
            try:
                own = sum(self._lower((step.result,), stored).cycles for step in self._definition(node))
            except Infeasible:
                continue
            try:
                with_node = self._lower((stuck.step.result,), {**stored, node: self._place(node)})
                score = (0, own + with_node.cycles, -node.number)
            except Infeasible as reason:
                score = (reason.excess or _SHAPE_EXCESS, own, -node.number)
            if best is None or score < best:
                best, choice = score, node
        provides = stuck.step.provides
        if choice is None and provides is not None and self._detach(provides):
            choice = provides
        if choice is None:
            raise WordlineError(
                "vector-region",
                f"no vector pass computes a value of shape {list(body.shape)} of region {self.name}",
                where=self.machine.name,
                remedy="place the region on the host",
            )
        return frozenset([choice])

    def _improve(self, plan: _Plan, extra: frozenset[Node]) -> _Plan:
        """Store more values, or fewer, as long as that saves cycles."""
        for node in self._shared_nodes(plan):
            if node not in extra:
                better = self._try(extra | {node}, plan)
                if better is not None:
                    plan, extra = better, extra | {node}
        for node in sorted(extra, key=lambda n: n.number):
            better = self._try(extra - {node}, plan)
            if better is not None:
                plan, extra = better, extra - {node}
        return plan

    def _try(self, extra: frozenset[Node], against: _Plan) -> _Plan | None:
        try:
            plan = self._plan(extra)
        except _Stuck:
            return None
        return plan if plan.cycles < against.cycles else None

    def _shared_nodes(self, plan: _Plan) -> list[Node]:
        """Operations that more than one result computes, deepest expressions first."""
        counts: dict[Node, int] = {}
        for at, group in enumerate(plan.groups):
            stored = self._available(plan.groups, at)
            for result in group.results:
                for node in _below(result.body, stored):
                    if node.kind == "op" and node not in stored and node is not result.body:
                        counts[node] = counts.get(node, 0) + 1
                    elif node.kind == "op" and node not in stored:
                        counts[node] = counts.get(node, 0) + (0 if node in plan.used else 1)
        shared = [node for node, count in counts.items() if count > 1 and node not in plan.used]
        return sorted(shared, key=lambda node: -node.number)


def _is_plain(node: Node) -> bool:
    """An input that is one run of bytes: a copy of it would be no easier to read."""
    return isinstance(node.detail, ScratchTensor) and node.detail.contiguous


def _takes_parts(node: Node, target: ScratchTensor) -> bool:
    """What is produced piece by piece (rows of a reduction, parts of a concat) can go straight to the target."""
    if node.kind == "reduce":
        return node.size > 1 and target.contiguous and len(target.dims) == 1 and target.capacity == target.elements
    return node.kind != "concat" or len(target.dims) == 1


def _operands(node: Node) -> Sequence[Node]:
    """What must be computed before the node: its operands; of a concat the parts that are written."""
    return [part for part, _ in _parts(node)] if node.kind == "concat" else node.args


def _parts(node: Node) -> list[tuple[Node, Shape]]:
    """What is written to get ``node``, and where each part begins: the parts of a concat (of concats), else itself."""
    found: list[tuple[Node, Shape]] = []

    def visit(at: Node, start: Shape) -> None:
        if at.kind != "concat":
            found.append((at, start))
            return
        axis = at.detail
        assert isinstance(axis, int)
        first = start[axis]
        for part in at.args:
            visit(part, (*start[:axis], first, *start[axis + 1 :]))
            first += part.shape[axis]

    visit(node, (0,) * len(node.shape))
    return found


_SHAPE_EXCESS = 1 << 20
"""Score of a value whose storing leaves the step without a pass shape: worse than any excess over a limit."""


def _below(node: Node, stored: Iterable[Node]) -> set[Node]:
    """The node and all it is computed from, down to what is stored."""
    leaves, seen, stack = set(stored), set[Node](), [node]
    while stack:
        at = stack.pop()
        if at not in seen:
            seen.add(at)
            if at not in leaves:
                stack.extend(at.args)
    return seen
