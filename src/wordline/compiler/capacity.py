"""Does a model fit a device, and if not, by how much and which machine would hold it."""

from __future__ import annotations

from collections.abc import Sequence

from wordline.compiler.footprint import Owner
from wordline.compiler.layout import KVLayout
from wordline.errors import WordlineError
from wordline.machines import Machine, list_machines, load_machine


def check_capacity(machine: Machine, weight_rows: int, kv: KVLayout, model: str, owners: Sequence[Owner] = ()) -> None:
    """Refuse a model that does not fit. ``owners`` of the weight rows are named in the error.

    Raises:
        WordlineError: "device-full", weights and KV cache need more DRAM rows than a bank has, or the page table more
            words than controller memory.
    """
    o = machine.organisation
    needed = weight_rows + kv.rows_per_channel()
    row = o.device_row_bytes
    if needed > o.rows:
        over = (needed - o.rows) * row
        raise WordlineError(
            "device-full",
            f"{model} needs {needed * row / 1e9:.2f} GB on {machine.name} (weights {weight_rows * row / 1e9:.2f} GB, "
            f"KV cache of the full context {kv.rows_per_channel() * row / 1e9:.2f} GB), "
            f"which has {o.rows * row / 1e9:.2f} GB: {over / 1e9:.2f} GB too much"
            + "".join(f"\n    {_owner(owner)}" for owner in sorted(owners, key=lambda owner: -owner.rows))
            + (
                f"\n    KV cache, {kv.layers} layers x {kv.kv_heads} heads: {kv.rows_per_channel() * row / 1e9:.2f} GB"
                if owners
                else ""
            ),
            where=machine.name,
            remedy=_remedy(machine, needed * row, weight_rows < o.rows),
        )
    words = machine.command_processor.controller_memory_bytes // 4
    if kv.table_words > words:
        raise WordlineError(
            "device-full",
            f"the page table of {model} needs {kv.table_words} words of controller memory, {machine.name} has {words}",
            where="command_processor.controller_memory_bytes",
            remedy="compile for a shorter --context",
        )


def _owner(owner: Owner) -> str:
    times = f", {owner.count} times" if owner.count > 1 else ""
    return f"{owner.name} {owner.bytes / 1e9:.2f} GB{times}"


def _remedy(machine: Machine, needed_bytes: float, context_helps: bool) -> str:
    others = (load_machine(name) for name in list_machines() if name != machine.name)
    larger = [
        other.name
        for other in others
        if other.generation == machine.generation and other.organisation.capacity_bytes >= needed_bytes
    ]
    parts = []
    if larger:
        parts.append(f"use --machine {larger[0]}")
    if context_helps:
        parts.append("compile for a shorter --context")
    return " or ".join(parts) or "no machine described here holds it; use a smaller model"
