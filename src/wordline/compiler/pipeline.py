"""The compiler, from a model or a graph to a program and to what an artifact holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from wordline.artifact import ArtifactContents
from wordline.compiler.capacity import check_capacity
from wordline.compiler.choices import FIRST_CHOICES, Choices
from wordline.compiler.codegen import generate
from wordline.compiler.compiled import Compiled
from wordline.compiler.contents import artifact_contents
from wordline.compiler.dump import dump_ir
from wordline.compiler.footprint import matrix_owners, weight_owners
from wordline.compiler.lower import kv_layout, lower_graph
from wordline.compiler.memory import plan_scratch
from wordline.compiler.optimisations import ALL, Optimisations
from wordline.compiler.plain import simplified
from wordline.compiler.synchronise import synchronise
from wordline.compiler.tuning import Tuning, tune
from wordline.errors import WordlineError
from wordline.frontend.load import ImportedModel, load_model
from wordline.graph.ir import Graph
from wordline.isa import instruction_set
from wordline.isa.verify import verify_program
from wordline.machines import Machine

Progress = Callable[[str], None]


def silent(_: str) -> None:
    """No progress report."""


def compile_graph(
    graph: Graph,
    machine: Machine,
    max_context: int,
    progress: Progress = silent,
    *,
    choices: Choices = FIRST_CHOICES,
    optimisations: Optimisations = ALL,
    tuning: Tuning | None = None,
) -> Compiled:
    """Compile a decode step (batch 1) for ``machine`` and contexts up to ``max_context`` tokens.

    ``choices``: what to do where several things can be done. ``tuning``: search for better ones than those.

    Raises ``WordlineError``: "scratch-full", "device-full", "kv-layout" and what the passes refuse.
    """
    _check_weights(graph, machine, max_context)

    def compile_with(made: Choices) -> Compiled:
        return _compile_smaller(graph, machine, max_context, optimisations, made, progress)

    first = compile_with(choices)
    return first if tuning is None else tune(first, tuning, compile_with, progress)


def _compile_smaller(
    graph: Graph,
    machine: Machine,
    max_context: int,
    optimisations: Optimisations,
    choices: Choices,
    progress: Progress,
) -> Compiled:
    """The fastest program that fits, with no more than ``optimisations``."""
    while True:
        try:
            return _compile(graph, machine, max_context, optimisations, choices, progress)
        except WordlineError as error:
            smaller = _smaller(optimisations, error.code)
            if smaller is None:
                raise
            optimisations = smaller


def _compile(
    graph: Graph,
    machine: Machine,
    max_context: int,
    optimisations: Optimisations,
    choices: Choices,
    progress: Progress,
) -> Compiled:
    progress("placing weights and generating kernels")
    used = machine if optimisations.accumulators_grouped else _with_one_accumulator(machine)
    lowered = lower_graph(used, graph, max_context, optimisations, choices)
    lowered.tasks = simplified(lowered.tasks, optimisations)
    # The larger memory first: a model that does not fit the device is told so, not that its vectors are long.
    owners = weight_owners(machine, lowered.streams, lowered.parameters)
    check_capacity(machine, lowered.weight_rows, lowered.kv, graph.name, owners)
    plan = plan_scratch(machine, lowered.tasks, (lowered.zeros,), rested=optimisations.scratch_rested)
    progress("synchronising engines")
    sync = synchronise(
        lowered.tasks, plan, overlap=optimisations.engines_overlapped, implied=optimisations.waits_implied
    )
    progress("generating code")
    generated = generate(machine, instruction_set(machine.generation), lowered.tasks, plan, sync)
    verify_program(generated.program, machine)
    return Compiled(machine, graph, lowered, plan, sync, generated, max_context)


def _with_one_accumulator(machine: Machine) -> Machine:
    """The machine as kernels see it that use no more of a bank's accumulators."""
    return replace(machine, sections={**machine.sections, "bank_unit": replace(machine.bank_unit, accumulators=1)})


def _smaller(optimisations: Optimisations, failure: str) -> Optimisations | None:
    """The next fastest program that takes less of what was short; None if there is none."""
    if failure == "program-too-large" and optimisations.pages_divided:
        return optimisations.without("pages_divided")
    if failure == "scratch-full" and optimisations.inputs_split:
        return optimisations.without("inputs_split")
    if failure == "scratch-full" and optimisations.rounds_overlapped:
        return optimisations.without("rounds_overlapped")
    return None


def _check_weights(graph: Graph, machine: Machine, max_context: int) -> None:
    """Refuse a model whose weights alone exceed the device before anything is generated for it."""
    owners = matrix_owners(machine, graph)
    if sum(owner.used_bytes for owner in owners) > machine.organisation.capacity_bytes:
        kv = kv_layout(machine, graph, max_context)
        check_capacity(machine, sum(owner.rows for owner in owners), kv, graph.name, owners)


def check_context(model: ImportedModel, context: int, where: str) -> None:
    """Raises ``WordlineError("bad-context")`` for a context that the model does not have."""
    limit = int(model.metadata["max_context"])
    if not 1 <= context <= limit:
        raise WordlineError(
            "bad-context",
            f"context {context} is outside 1..{limit}",
            where=where,
            remedy=f"give --context up to {limit}",
        )


def compile_model(
    source: str | Path,
    machine: Machine,
    context: int | None = None,
    progress: Progress = silent,
    dump: Path | None = None,
    tuning: Tuning | None = None,
) -> ArtifactContents:
    """Load a model (GGUF, Hugging Face directory, config.json) and compile its decode step for ``machine``.

    ``context``: tokens a session may reach; default the model's maximum. ``dump``: folder for the text of every level.
    ``tuning``: search for better choices than the cost model's.
    """
    progress("importing the model")
    model = load_model(source)
    if context is None:
        context = int(model.metadata["max_context"])
    check_context(model, context, str(source))
    compiled = compile_graph(model.graph, machine, context, progress, tuning=tuning)
    if dump is not None:
        progress("writing the intermediate representations")
        dump_ir(compiled, dump)
    progress("packing weights")
    return artifact_contents(compiled, model, Path(source))
