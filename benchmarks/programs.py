"""Device programs of the cycle suite, made by the code that compiles models."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from wordline.compiler.alone import encode_tasks, gemv_alone
from wordline.compiler.arguments import argument_memory
from wordline.compiler.choices import GemvShape
from wordline.compiler.codegen import GeneratedProgram
from wordline.compiler.compiled import Compiled
from wordline.compiler.gemv_plan import first_choice
from wordline.compiler.kernel.ir import Task
from wordline.compiler.kernels.hbm2_pim.elementwise import Operation, elementwise, plan_elementwise
from wordline.compiler.kernels.hbm2_pim.gemv import plan_gemv
from wordline.compiler.kernels.hbm2_pim.placement import generate_gemv
from wordline.compiler.kernels.hbm2_pim.state import ChannelState
from wordline.compiler.optimisations import ALL, Optimisations
from wordline.compiler.pipeline import compile_graph
from wordline.frontend.load import load_config
from wordline.isa.declare import Engine
from wordline.machines import Machine
from wordline.sim.shapes import ModelShape


@dataclass(frozen=True)
class Benchmark:
    """A program, and the words of the controller's memory that it is timed with (argument block at word 0)."""

    generated: GeneratedProgram
    memory: npt.NDArray[np.int32]


def gemv_program(machine: Machine, m: int, k: int) -> Benchmark:
    """y[m] = W[m, k] x, with x in scratch (every channel) at the start and y there at the end."""
    shape = GemvShape((m,), k)
    return Benchmark(gemv_alone(machine, shape, first_choice(machine, shape)), np.zeros(0, np.int32))


def block_gemv_program(machine: Machine, m: int, k: int) -> Benchmark:
    """The same where blocks of two banks compute: each pseudo-channel's inputs in its scratch, partial sums there."""
    return Benchmark(generate_gemv(machine, plan_gemv(machine, m, k)), np.zeros(0, np.int32))


def elementwise_program(machine: Machine, operation: Operation, elements: int) -> Benchmark:
    """c = a + b, a * b or relu(a), operands and result in the banks; from single-bank mode and back."""
    state = ChannelState()
    items = elementwise(plan_elementwise(machine, operation, elements), state)
    task = Task(Engine.CHANNEL, operation, operation, "vector", "", (*items, *state.single()))
    return Benchmark(encode_tasks(machine, [task], []), np.zeros(0, np.int32))


def attention_program(machine: Machine, shape: ModelShape, max_context: int, context: int) -> Benchmark:
    """The attention of one layer as the compiled model has it: append, scores, softmax, weighted sum.

    Queries, keys and values are in scratch at the start, the result at the end; it attends over ``context`` tokens.
    """
    # The model around it is small, so that the attention has the scratch to itself; its first layer is meant, because
    # the last one's work is skipped unless logits are wanted.
    around = dataclasses.replace(shape, layers=2, hidden=16 * shape.heads, ffn=128, vocab=512)
    compiled = compiled_step(machine, around, max_context)
    first = next(task.op for task in compiled.tasks if task.kind == "attention")
    tasks = [task for task in compiled.tasks if task.kind == "attention" and task.op == first]
    written = {buffer for task in tasks for buffer in task.writes}
    given = dict.fromkeys(b for task in tasks for b in task.reads if b not in written)
    inputs = (compiled.lowered.zeros, *(b for b in given if b is not compiled.lowered.zeros))
    return Benchmark(encode_tasks(machine, tasks, inputs), _memory(compiled, context))


def decode_program(
    machine: Machine, shape: ModelShape, max_context: int, context: int, optimisations: Optimisations = ALL
) -> Benchmark:
    """A whole decode step at position ``context`` - 1, with logits and the greedy next token."""
    compiled = compiled_step(machine, shape, max_context, optimisations)
    return Benchmark(compiled.generated, _memory(compiled, context))


@cache
def compiled_step(
    machine: Machine, shape: ModelShape, max_context: int, optimisations: Optimisations = ALL
) -> Compiled:
    """The decode step of a Llama of this shape, without weights."""
    fields = {
        **shape.config_fields(),
        "model_type": "llama",
        "max_position_embeddings": max_context,
        "tie_word_embeddings": True,
    }
    graph = load_config(shape.name, fields).graph
    return compile_graph(graph, machine, max_context, optimisations=optimisations)


def _memory(compiled: Compiled, context: int) -> npt.NDArray[np.int32]:
    return argument_memory(compiled.lowered.kv, compiled.weight_rows, context)
