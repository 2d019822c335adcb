"""Who owns the memory of a device: weights by owner, KV cache by context, scratch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wordline.artifact.names import PARAMETERS, starred
from wordline.compiler.integers import ceil_div
from wordline.compiler.layout import KVLayout, ParameterRows, WeightStream, place_weights
from wordline.compiler.memory import ScratchPlan
from wordline.graph.ir import Graph
from wordline.machines import Machine


@dataclass(frozen=True, slots=True)
class Owner:
    """Matrices that share rows, the same ones of all layers together: ``rows`` DRAM rows in every bank.

    ``bytes`` is what these rows hold, ``used_bytes`` the part of it that is weights and not padding.
    """

    name: str
    count: int
    rows: int
    bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class KvFootprint:
    """KV cache of one sequence of ``context`` tokens: its pages, and the rows of the fullest channel."""

    context: int
    pages: int
    bytes: int
    rows: int


def weight_owners(machine: Machine, streams: Sequence[WeightStream], parameters: ParameterRows) -> list[Owner]:
    """Owners of all weight rows, in the order in which they lie."""
    row_bytes = machine.organisation.device_row_bytes
    element = machine.organisation.column_bytes // machine.bank_unit.lanes
    found: dict[str, list[int]] = {}
    for stream in streams:
        totals = found.setdefault(" + ".join(map(starred, stream.names)), [0, 0, 0])
        totals[0] += 1
        totals[1] += stream.dram_rows
        totals[2] += sum(stream.outputs) * stream.k * element
    if parameters.rows:
        places = parameters.places.values()
        found[PARAMETERS] = [len(places), parameters.rows, sum(4 * place.elements for place in places)]
    return [Owner(name, count, rows, rows * row_bytes, used) for name, (count, rows, used) in found.items()]


def matrix_owners(machine: Machine, graph: Graph) -> list[Owner]:
    """Owners of the rows that the graph's matrices would take, each placed by itself: known before anything else is."""
    row_bytes = machine.organisation.device_row_bytes
    element = machine.organisation.column_bytes // machine.bank_unit.lanes
    found: dict[str, list[int]] = {}
    for name, constant in graph.constants.items():
        shape = constant.type.shape
        if len(shape) == 2 and not constant.inline:
            m, k = (int(str(size)) for size in shape)
            totals = found.setdefault(starred(name), [0, 0, 0])
            totals[0] += 1
            totals[1] += place_weights(machine, [name], [m], k, 0).dram_rows
            totals[2] += m * k * element
    return [Owner(name, count, rows, rows * row_bytes, used) for name, (count, rows, used) in found.items()]


def kv_footprint(machine: Machine, kv: KVLayout, context: int) -> KvFootprint:
    """What one sequence of ``context`` tokens takes, in whole pages."""
    pages = ceil_div(context, kv.page_tokens)
    loads = [0] * kv.channels
    for head in range(kv.kv_heads):
        for page in range(min(pages, kv.spread)):
            loads[(page * kv.groups + head) % kv.channels] += ceil_div(pages - page, kv.spread)
    total = pages * kv.kv_heads * kv.layers
    page_bytes = kv.rows_per_page * machine.organisation.device_row_bytes // kv.channels
    return KvFootprint(context, total, total * page_bytes, max(loads) * kv.layers * kv.rows_per_page)


def live_peak(plan: ScratchPlan) -> int:
    """Most bytes of a channel's scratch that hold something at one time; placing them apart takes more."""
    change: dict[int, int] = {}
    for p in plan.placements:
        change[p.first] = change.get(p.first, 0) + p.size
        change[p.last + 1] = change.get(p.last + 1, 0) - p.size
    live = peak = 0
    for task in sorted(change):
        live += change[task]
        peak = max(peak, live)
    return peak


def envelope_contexts(kv: KVLayout, max_context: int) -> list[int]:
    """Contexts at which a memory envelope is given: one page, then doubled, and the longest."""
    contexts = []
    context = kv.page_tokens
    while context < max_context:
        contexts.append(context)
        context *= 2
    return [*contexts, max_context]
