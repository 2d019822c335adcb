"""Programs of one operation alone, as the compiled model has it: to time one choice beside another."""

from __future__ import annotations

from collections.abc import Sequence

from wordline.compiler.choices import AttentionChoice, GemvChoice, GemvShape, HeadShape
from wordline.compiler.codegen import GeneratedProgram, generate
from wordline.compiler.gemv_plan import placed
from wordline.compiler.kernel.ir import Task
from wordline.compiler.kernel.scratch import ScratchBuffer, broadcast
from wordline.compiler.kernels import attention
from wordline.compiler.layout import KVLayout, place_kv
from wordline.compiler.memory import plan_scratch
from wordline.compiler.projection import project
from wordline.compiler.synchronise import synchronise
from wordline.isa import instruction_set
from wordline.isa.verify import verify_program
from wordline.machines import Machine


def encode_tasks(machine: Machine, tasks: Sequence[Task], inputs: Sequence[ScratchBuffer]) -> GeneratedProgram:
    """Plan, synchronise, encode and verify ``tasks``; ``inputs`` hold data from the start.

    Raises ``WordlineError``: "scratch-full", "program-too-large".
    """
    plan = plan_scratch(machine, tasks, inputs)
    generated = generate(machine, instruction_set(machine.generation), tasks, plan, synchronise(tasks, plan))
    verify_program(generated.program, machine)
    return generated


def gemv_alone(machine: Machine, shape: GemvShape, choice: GemvChoice) -> GeneratedProgram:
    """The products of ``shape``, with x in scratch (every channel) at the start and the results there at the end."""
    x = broadcast("x", "bf16", shape.k, machine.bank_unit.lanes)
    zeros = ScratchBuffer("zeros", machine.organisation.column_bytes)
    stream = placed(machine, shape, choice)
    tasks = project(machine, stream, x, zeros, "y", "gemv", "gemv", awaited=False).tasks
    return encode_tasks(machine, tasks, (zeros, x.buffer))


def attention_alone(machine: Machine, heads: HeadShape, choice: AttentionChoice) -> tuple[GeneratedProgram, KVLayout]:
    """One layer's attention for one new token, q, k and v in scratch at the start, and the layout of its pages."""
    kv = place_kv(machine, 1, heads.kv_heads, heads.head_dim, heads.max_context, groups=choice.groups)
    shape = attention.AttentionShape(kv, 0, heads.group, heads.head_dim**-0.5, None)
    size = heads.kv_heads * heads.head_dim
    q, k, v, out = (
        broadcast(name, "bf16", elements, machine.bank_unit.lanes)
        for name, elements in (("q", size * heads.group), ("k", size), ("v", size), ("out", size * heads.group))
    )
    zeros = ScratchBuffer("zeros", machine.organisation.column_bytes)
    steps = attention.AttentionSteps(machine, shape, q, k, v, out, zeros, choice, overlap=True, apart=False).steps
    tasks = [
        Task(s.engine, s.name, "attention", "attention", "", s.body, s.reads, s.writes, s.prologue, None, s.shares)
        for s in steps
    ]
    return encode_tasks(machine, tasks, (zeros, q.buffer, k.buffer, v.buffer)), kv
