"""From the graph to tasks: each operation to the engine that dispatch chose, vector regions in between."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from wordline.artifact import ArgumentNames
from wordline.compiler.arguments import LOGITS_ADDRESS, NEXT_TOKEN, POSITION, TOKEN
from wordline.compiler.choices import AttentionChoice, Choices, GemvChoice, GemvShape, HeadShape, plain_gemv
from wordline.compiler.dispatch import (
    AS_READ_OUT,
    FEWEST_CYCLES,
    NO_ROOM,
    SEARCHED,
    Decision,
    dispatch_attention,
    dispatch_embedding,
    dispatch_linear,
    dispatch_region,
)
from wordline.compiler.gemv_plan import first_choice, placed
from wordline.compiler.kernel.ir import Address, Item, Share, Task, TaskKind, command
from wordline.compiler.kernel.scratch import (
    ScratchBuffer,
    ScratchTensor,
    broadcast,
    contiguous,
    shard_elements,
    sharded,
)
from wordline.compiler.kernel.symbols import Register, SharedRegister, linear
from wordline.compiler.kernels import attention, embedding, parameter
from wordline.compiler.layout import KVLayout, ParameterRows, WeightStream, place_kv, place_weights
from wordline.compiler.optimisations import Optimisations
from wordline.compiler.projection import project
from wordline.compiler.regions import Form, Region, RegionFinder, group_of
from wordline.compiler.vector.cost import passes_cost
from wordline.compiler.vector.expression import RegionInput
from wordline.compiler.vector.region import Destination, compile_region
from wordline.errors import WordlineError
from wordline.graph.ir import Graph, Op, Value
from wordline.isa.declare import Engine
from wordline.machines import Machine

SPREAD_BYTES = 1024
"""Vectors of more bytes than this are spread over the channels: less scratch in each, and less to read from banks."""
BINDINGS = {"batch": 1}
"""Symbols of the graph in this program: one sequence."""
WORDS = {"token": TOKEN, "position": POSITION}
"""Argument words of the graph's inputs."""


@dataclass(frozen=True)
class ChosenGemv:
    """What was chosen for the GEMVs of one shape; each is named after the first of the operations that it does."""

    choice: GemvChoice
    operations: tuple[str, ...]


@dataclass
class Lowered:
    """What lowering produces: tasks in sequential order, placements in DRAM, decisions, the logits tensor.

    ``heads``, ``attention``: shape and choice of every layer's attention; ``gemvs``: the operations of each shape of
    GEMV whose choice is open, by their labels, and what was chosen for it.
    """

    tasks: list[Task]
    streams: list[WeightStream]
    parameters: ParameterRows
    kv: KVLayout
    heads: HeadShape
    attention: AttentionChoice
    gemvs: dict[GemvShape, ChosenGemv]
    decisions: list[Decision]
    zeros: ScratchBuffer
    logits_shard: int
    vocabulary: int

    @property
    def weight_rows(self) -> int:
        """DRAM rows that hold weights and vector parameters, from row 0 on."""
        return self.parameters.first_row + self.parameters.rows


def attention_geometry(graph: Graph) -> tuple[int, int, int, int]:
    """(layers, query heads, KV heads, head size) of the graph's attentions, which must agree."""
    found = set()
    layers = set()
    for op in graph.ops:
        if op.kind == "attention":
            q, k, _ = (value.type.shape for value in op.operands)
            found.add((_static(q[1]), _static(k[1]), _static(q[-1])))
            layers.add(op.attrs["layer"])
    if len(found) != 1 or layers != set(range(len(layers))):
        raise WordlineError(
            "attention-shapes",
            f"the layers' attentions differ in heads or head size: {sorted(found)}",
            where=graph.name,
        )
    heads, kv_heads, head_dim = found.pop()
    return len(layers), heads, kv_heads, head_dim


def head_shape(graph: Graph, max_context: int) -> HeadShape:
    """What the graph's attentions have in common."""
    _, heads, kv_heads, head_dim = attention_geometry(graph)
    return HeadShape(kv_heads, heads // kv_heads, head_dim, max_context)


def kv_layout(machine: Machine, graph: Graph, max_context: int, choice: AttentionChoice | None = None) -> KVLayout:
    """Where the KV cache of the graph's attentions lies; ``choice``: None for the first one."""
    layers, _, kv_heads, head_dim = attention_geometry(graph)
    choice = choice or attention.first_choice(machine, head_shape(graph, max_context))
    return place_kv(machine, layers, kv_heads, head_dim, max_context, groups=choice.groups)


def label_of(op: Op) -> str:
    """A name for reports: the kind of operation and the module of the model that it comes from."""
    module = op.loc.split(",")[0]
    return f"{op.kind} {module or op.results[0].id}"


def _static(dim: object) -> int:
    if not isinstance(dim, int):
        raise WordlineError("dynamic-shape", f"a dimension that must be a number is the symbol {dim}")
    return dim


def lower_graph(
    machine: Machine, graph: Graph, max_context: int, optimisations: Optimisations, choices: Choices
) -> Lowered:
    """Lower a decode step of batch 1."""
    return _Lowering(machine, graph, max_context, optimisations, choices).run()


class _Lowering:
    def __init__(
        self, machine: Machine, graph: Graph, max_context: int, optimisations: Optimisations, choices: Choices
    ) -> None:
        self.machine, self.graph, self.optimisations, self.choices = machine, graph, optimisations, choices
        self.column_bytes, self.lanes = machine.organisation.column_bytes, machine.bank_unit.lanes
        _, self.heads, _, _ = attention_geometry(graph)
        self.heads_shape = head_shape(graph, max_context)
        chosen = choices.attention or attention.first_choice(machine, self.heads_shape)
        if not optimisations.channels_grouped:
            chosen = replace(chosen, groups=1)
        self.kv = kv_layout(machine, graph, max_context, chosen)
        self.attention_choice = chosen if optimisations.pages_divided else AttentionChoice(chosen.groups)
        self.max_context = max_context
        self.finder = RegionFinder(graph)
        self.state_ops = self.finder.state_ops()
        self.tasks: list[Task] = []
        self.streams: list[WeightStream] = []
        self.stream_of: dict[str, tuple[WeightStream, int]] = {}
        self.gemvs: dict[GemvShape, tuple[GemvChoice, list[str]]] = {}
        self.next_row = 0
        self.decisions: list[Decision] = []
        self.zeros = ScratchBuffer("zeros", self.column_bytes)
        self.f32: dict[Value, ScratchTensor] = {}
        self.wide: dict[Value, ScratchTensor] = {}
        self.indices: dict[Value, SharedRegister] = {}
        self.parameter_names: dict[str, int] = {}
        self.parameter_tasks: list[tuple[int, str, ScratchTensor, str, int | None]] = []
        self.hoist = 0
        self.done: set[Op] = set()
        self.counter = 0

    def run(self) -> Lowered:
        for op in self.graph.ops:
            if op in self.done:
                continue
            if op.kind == "embedding":
                self._embedding(op)
            elif op.kind == "linear":
                self._linear(op)
            elif op.kind == "attention":
                self._attention(op)
        self._outputs()
        parameters = ParameterRows(self.machine, self.next_row)
        tasks = self._with_parameters(parameters)
        logits = self._logits_op()
        vocabulary = _static(logits.result.type.shape[-1])
        return Lowered(
            tasks,
            self.streams,
            parameters,
            self.kv,
            self.heads_shape,
            self.attention_choice,
            {shape: ChosenGemv(choice, tuple(ops)) for shape, (choice, ops) in self.gemvs.items()},
            self.decisions,
            self.zeros,
            shard_elements(self.machine, vocabulary),
            vocabulary,
        )

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _task(
        self,
        engine: Engine,
        name: str,
        op: Op | None,
        kind: TaskKind,
        body: Sequence[Item],
        reads: Sequence[ScratchBuffer] = (),
        writes: Sequence[ScratchBuffer] = (),
        prologue: Sequence[Item] = (),
        predicate: int | None = None,
        shares: Sequence[Share] = (),
    ) -> None:
        label = name if op is None else label_of(op)
        loc = "" if op is None else op.loc
        self.tasks.append(
            Task(
                engine,
                name,
                label,
                kind,
                loc,
                tuple(body),
                tuple(reads),
                tuple(writes),
                tuple(prologue),
                predicate,
                tuple(shares),
            )
        )

    def _predicate(self, ops: Sequence[Op]) -> int | None:
        """Work that no KV cache depends on is done only when logits are wanted."""
        return None if any(op in self.state_ops for op in ops) else ArgumentNames.LOGITS_BIT

    def _vector(self, name: str, elements: int) -> ScratchTensor:
        """A new float32 vector: long ones are spread over the channels as matrix-vector results are."""
        if elements * 4 > SPREAD_BYTES:
            return sharded(name, self.machine, elements, "f32")
        return contiguous(name, "f32", elements, self.column_bytes // 4)

    def _name(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def _constant_name(self, value: Value, op: Op) -> str:
        producer = self.finder.producer(self.finder.root(value))
        if producer is None or producer.kind != "constant" or "name" not in producer.attrs:
            raise WordlineError("weight-not-constant", f"{op.kind} needs a constant weight", where=op.loc)
        return str(producer.attrs["name"])

    # --- bank operations ----------------------------------------------------------------------------------------------

    def _place(self, names: Sequence[str], outputs: Sequence[int], k: int, choice: GemvChoice) -> WeightStream:
        stream = place_weights(self.machine, names, outputs, k, self.next_row, choice)
        self.next_row += stream.dram_rows
        self.streams.append(stream)
        for index, name in enumerate(names):
            self.stream_of[name] = (stream, index)
        return stream

    def _embedding(self, op: Op) -> None:
        name = self._constant_name(op.operands[0], op)
        if self.finder.root(op.operands[1]) is not self.finder.root(self.graph.input("token")):
            raise WordlineError(
                "embedding-index",
                "only the step's token can index an embedding; this model looks up something else, such as positions",
                where=op.loc,
                remedy="use a model with rotary position embedding, such as Llama, Mistral or Qwen",
            )
        vocabulary, width = (_static(d) for d in op.operands[0].type.shape)
        if name not in self.stream_of:
            self._place([name], [vocabulary], width, plain_gemv(self.machine, indexed=True))
        self.decisions.append(dispatch_embedding(self.machine, label_of(op), width))
        stream, _ = self.stream_of[name]
        row = ScratchBuffer(self._name("row"), stream.columns * self.column_bytes)
        result = self._vector(self._name("embedding"), width)
        self.hoist = len(self.tasks)
        self._task(Engine.CHANNEL, f"fetch {name}", op, "embedding", embedding.fetch_row(stream, row), writes=[row])
        collect = embedding.collect_row(self.machine, stream, row, result)
        self._task(Engine.VECTOR, f"collect {name}", op, "embedding", collect, [row], [result.buffer])
        self.f32[op.result] = result
        self.done.add(op)

    def _linear(self, first: Op) -> None:
        """All linears that share ``first``'s input, as one GEMV."""
        x = self.finder.root(first.operands[0])
        ops = [
            op
            for op in self.graph.ops
            if op.kind == "linear" and op not in self.done and self.finder.root(op.operands[0]) is x
        ]
        if not self.optimisations.inputs_shared:
            ops = [first]
        names = [self._constant_name(op.operands[1], op) for op in ops]
        placed = [op for op, name in zip(ops, names, strict=True) if name in self.stream_of]
        if placed:
            ops = [first] if first in placed else [op for op in ops if op not in placed]
            names = [self._constant_name(op.operands[1], op) for op in ops]
        self._ready([(first.operands[0], Form.BF16_EVERYWHERE)])
        k = _static(first.operands[1].type.shape[1])
        outputs = [_static(op.operands[1].type.shape[0]) for op in ops]
        shape = GemvShape(tuple(outputs), k, read_out=self._logits_op() in ops)
        if names[0] in self.stream_of:
            stream, index = self.stream_of[names[0]]
            if index or len(stream.names) != 1:
                raise WordlineError(
                    "shared-weight", f"{names[0]} is used by several GEMVs in different groups", where=first.loc
                )
        else:
            stream = self._place(names, outputs, k, self._choice(shape))
            self.gemvs.setdefault(shape, (stream.choice, []))[1].append(label_of(first))
        why = AS_READ_OUT if shape.read_out else self._why(shape)
        for op, m in zip(ops, outputs, strict=True):
            task = "gemv " + "+".join(names)
            self.decisions.append(dispatch_linear(self.machine, label_of(op), m, k, stream.choice, why, task))
        x_tensor = self.wide[x]
        projection = project(
            self.machine,
            stream,
            x_tensor,
            self.zeros,
            self._name("y"),
            "gemv " + "+".join(names),
            label_of(first),
            first.loc,
            self._predicate(ops),
        )
        self.hoist = len(self.tasks)
        self.tasks.extend(projection.tasks)
        for op, result in zip(ops, projection.results, strict=True):
            self.f32[op.result] = result
            self.done.add(op)

    def _choice(self, shape: GemvShape) -> GemvChoice:
        choice = self.choices.gemv.get(shape) or first_choice(self.machine, shape)
        if not self.optimisations.rows_opened_ahead:
            choice = replace(choice, padded=False)  # no visit would hide under the row turn that padding buys
        if self.optimisations.inputs_split or not placed(self.machine, shape, choice).partial:
            return choice
        return plain_gemv(self.machine)

    def _why(self, shape: GemvShape) -> str:
        if not self.optimisations.inputs_split:
            return NO_ROOM
        return SEARCHED if shape in self.choices.gemv else FEWEST_CYCLES

    def _attention(self, op: Op) -> None:
        q, k, v = op.operands
        self._ready([(value, Form.BF16_EVERYWHERE) for value in (k, v)])
        self._ready([(q, Form.BF16_EVERYWHERE)])
        kv = self.kv
        window = op.attrs.get("window")
        shape = attention.AttentionShape(
            kv,
            int(str(op.attrs["layer"])),
            self.heads // kv.kv_heads,
            float(str(op.attrs["scale"])),
            None if window is None else int(str(window)),
        )
        q_, k_, v_ = (self.wide[self.finder.root(value)] for value in (q, k, v))
        self.decisions.append(dispatch_attention(self.machine, label_of(op), kv, shape.group, self.max_context))
        out = broadcast(f"attention{shape.layer}", "bf16", self.heads * kv.head_dim, self.lanes)
        predicate = self._predicate(self.graph.users()[op.result])
        self.hoist = len(self.tasks)
        steps = attention.AttentionSteps(
            self.machine,
            shape,
            q_,
            k_,
            v_,
            out,
            self.zeros,
            self.attention_choice,
            overlap=self.optimisations.rounds_overlapped,
            apart=predicate is not None or not self.optimisations.appended_on_the_way,
        ).steps
        for step in steps:
            self._task(
                step.engine,
                f"attention{shape.layer} {step.name}",
                op,
                "attention",
                step.body,
                step.reads,
                step.writes,
                step.prologue,
                None if step.always else predicate,
                step.shares,
            )
        self.f32[op.result] = out
        self.wide[op.result] = out
        self.done.add(op)

    # --- vector regions -----------------------------------------------------------------------------------------------

    def _ready(self, wanted: Sequence[tuple[Value, Form]]) -> None:
        """Emit the region that makes the wanted forms exist, if any is missing."""
        missing = [
            (self.finder.root(value), form) for value, form in wanted if not self._has(self.finder.root(value), form)
        ]
        if missing:
            missing = list(dict.fromkeys(missing))
            region = self.finder.region(missing, set(self.f32))
            if not self.optimisations.vectors_fused:
                self._emit_one_by_one(region)
                region = self.finder.region(missing, set(self.f32))
            self._emit_region(region)

    def _emit_one_by_one(self, region: Region) -> None:
        """Every operation in a region of its own, its result in scratch."""
        for op in region.ops:
            result = self.finder.root(op.result)
            alone = group_of(op) not in ("view", "source") and (result, Form.INDEX) not in region.demands
            if alone and result not in self.f32:
                self._emit_region(self.finder.region([(result, Form.F32)], set(self.f32)))

    def _has(self, value: Value, form: Form) -> bool:
        kept: dict[Form, Container[Value]] = {
            Form.F32: self.f32,
            Form.BF16_EVERYWHERE: self.wide,
            Form.INDEX: self.indices,
        }
        return value in kept[form]

    def _emit_region(self, region: Region) -> None:
        op = region.ops[-1] if region.ops else self.finder.producer(region.demands[0][0])
        predicate = self._predicate(region.ops) if region.ops else None
        inputs: dict[Value, RegionInput] = {}
        for value in region.inputs:
            inputs[value] = self._region_input(value, predicate)
        outputs: list[tuple[Value, Destination]] = []
        for value, form in region.demands:
            elements = value.type.static_elements()
            if form is Form.F32:
                self.f32[value] = self._vector(self._name("v"), elements)
                outputs.append((value, self.f32[value]))
            elif form is Form.BF16_EVERYWHERE:
                self.wide[value] = broadcast(self._name("x"), "bf16", elements, self.lanes)
                outputs.append((value, self.wide[value]))
            else:
                self.indices[value] = SharedRegister(self._name("index"))
                outputs.append((value, self.indices[value]))
        name = self._name("region")
        code = compile_region(self.machine, name, region.ops, inputs, outputs, BINDINGS)
        block = code.block
        body: list[Item] = [command("LDA", register, None, index=WORDS[register.name]) for register in block.registers]
        body.extend(block.items)
        elements = sum(v.type.static_elements() for v in (*region.inputs, *(value for value, _ in region.demands)))
        cost = passes_cost(self.machine, block.items)
        label = name if op is None else label_of(op)
        self.decisions.append(dispatch_region(self.machine, label, cost, elements, name))
        self._task(Engine.VECTOR, name, op, "vector", body, block.reads, block.writes, (), predicate)

    def _region_input(self, value: Value, predicate: int | None) -> RegionInput:
        if value in self.f32:
            return self.f32[value]
        producer = self.finder.producer(value)
        if producer is None:
            return Register(value.name)
        name = str(producer.attrs["name"])
        tensor = self._vector(f"{name}.{self.counter}", value.type.static_elements())
        at = self.hoist if self.optimisations.parameters_ahead else len(self.tasks)
        self.parameter_tasks.append((at, name, tensor, producer.loc, predicate))
        return tensor

    # --- parameters and outputs ---------------------------------------------------------------------------------------

    def _with_parameters(self, parameters: ParameterRows) -> list[Task]:
        """The tasks, with the reads of vector parameters ahead of the bank work before their use: no channel waits."""
        before: dict[int, list[Task]] = {}
        for index, name, tensor, loc, predicate in self.parameter_tasks:
            shard = tensor.dims[-1][0] if len(tensor.dims) > 1 else None
            place = parameters.places.get(name) or parameters.add(name, tensor.elements, shard)
            body = parameter.read(self.machine, place, tensor)
            task = Task(
                Engine.CHANNEL, f"read {name}", name, "parameter", loc, body, (), (tensor.buffer,), (), predicate
            )
            before.setdefault(index, []).append(task)
        tasks: list[Task] = []
        for index, task in enumerate(self.tasks):
            tasks.extend(before.get(index, ()))
            tasks.append(task)
        return tasks

    def _logits_op(self) -> Op:
        root = self.finder.root(self.graph.outputs["logits"])
        producer = self.finder.producer(root)
        if producer is None or producer.kind != "linear":
            raise WordlineError(
                "logits", "the step's logits must come straight from a linear operation", where=self.graph.name
            )
        return producer

    def _outputs(self) -> None:
        logits = self._logits_op()
        tensor = self.f32[logits.result]
        shard_bytes = tensor.dims[-1][0] * tensor.element_bytes
        send = command(
            "XOUT",
            None,
            {"slot": LOGITS_ADDRESS},
            scratch=Address(tensor.buffer, linear(tensor.offset)),
            stride=self.machine.scratch.bytes_per_channel,
            blocks=self.machine.organisation.channels,
            bytes=shard_bytes,
            offset=0,
        )
        self._task(Engine.LINK, "send logits", logits, "link", [send], [tensor.buffer], (), (), ArgumentNames.SEND_BIT)
        token = self.graph.outputs["next_token"]
        self._ready([(token, Form.INDEX)])
        index = Register("next_token")
        body = [
            command("GETS", index, None, shared=self.indices[self.finder.root(token)]),
            command("STA", None, None, index=NEXT_TOKEN, value=index),
        ]
        self._task(
            Engine.VECTOR,
            "store next token",
            self.finder.producer(self.finder.root(token)),
            "vector",
            body,
            (),
            (),
            (),
            ArgumentNames.LOGITS_BIT,
        )
