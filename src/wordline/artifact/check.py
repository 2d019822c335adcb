"""Checks a manifest against its machine and its program: what hashes cannot tell."""

from __future__ import annotations

from wordline.artifact.manifest import (
    ENTRY_ALIGNMENT,
    LOGITS_BYTES,
    PROGRAM,
    TOKENIZER,
    WEIGHTS,
    ArgumentNames,
    Entry,
    Manifest,
)
from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.declare import LENGTH_BITS, OPCODE_BITS
from wordline.isa.program import split_image
from wordline.machines import Machine


def check_manifest(manifest: Manifest, machine: Machine, program: bytes) -> str:
    """The first problem found, or an empty text."""
    checks = (
        _check_parts(manifest, machine),
        _check_memory(manifest, machine),
        _check_logits(manifest),
        _check_choices(manifest),
    )
    problem = next((c for c in checks if c), "")
    if problem:
        return problem
    if not manifest.entries:
        return "it has no entry points"
    for name, entry in manifest.entries.items():
        problem = _check_entry(manifest, entry, program)
        if problem:
            return f"entry {name!r}: {problem}"
    return ""


def _check_parts(manifest: Manifest, machine: Machine) -> str:
    parts = manifest.parts
    if manifest.generation != machine.generation:
        return f"generation {manifest.generation!r} is not that of the machine ({machine.generation!r})"
    unknown = sorted(set(parts) - {PROGRAM, WEIGHTS, TOKENIZER})
    if unknown:
        return f"the part {unknown[0]!r:.60} is not known"
    if PROGRAM not in parts:
        return f"{PROGRAM} is missing"
    if WEIGHTS in parts:
        wanted = manifest.memory.weight_rows * machine.organisation.device_row_bytes
        if parts[WEIGHTS].bytes != wanted:
            return f"{WEIGHTS} has {parts[WEIGHTS].bytes} bytes, {manifest.memory.weight_rows} rows are {wanted}"
    if TOKENIZER in parts and manifest.tokenizer is None:
        return f"{TOKENIZER} has no description"
    return ""


def _check_choices(manifest: Manifest) -> str:
    step = manifest.search
    if step is not None and not (step.first_cycles and step.cycles):
        return "a step that was searched takes 0 cycles"
    for searched in (chosen.search for chosen in manifest.choices):
        if searched is not None and not (searched.first_cycles and searched.cycles):
            return f"{searched.best!r:.60} was timed with 0 cycles"
    return ""


def _check_memory(manifest: Manifest, machine: Machine) -> str:
    memory, kv, rows = manifest.memory, manifest.memory.kv, machine.organisation.rows
    if memory.weight_rows > rows or kv.first_row < memory.weight_rows or kv.first_row > rows:
        return f"rows: weights take {memory.weight_rows}, KV pages start at {kv.first_row}, the machine has {rows}"
    if not (kv.layers and kv.kv_heads and kv.head_dim and kv.page_tokens and kv.rows_per_page and kv.max_context):
        return "a size of the KV cache is 0"
    channels, groups = machine.organisation.channels, kv.channel_groups
    if groups < 1 or channels % groups or kv.kv_heads % groups:
        return f"{groups} groups of channels divide neither {channels} channels nor {kv.kv_heads} KV heads evenly"
    capacity = kv.pages_per_channel * kv.page_tokens * (channels // groups)
    if capacity < kv.max_context:
        return f"KV pages hold {capacity} tokens, the context is {kv.max_context}"
    for point in memory.envelope:
        if point.context > kv.max_context or kv.first_row + point.kv_rows > rows:
            return f"the envelope at context {point.context} takes {point.kv_rows} rows of KV pages"
    for weight in memory.weights:
        if weight.first_row + weight.rows > memory.weight_rows:
            return f"weight {weight.name!r} ends at row {weight.first_row + weight.rows} of {memory.weight_rows}"
    for buffer in memory.scratch:
        if buffer.offset + buffer.bytes > machine.scratch.bytes_per_channel * machine.organisation.channels:
            return f"scratch buffer {buffer.name!r} ends at byte {buffer.offset + buffer.bytes}, outside scratch"
    return ""


def _check_logits(manifest: Manifest) -> str:
    logits = manifest.logits
    if logits.dtype not in LOGITS_BYTES:
        return f"logits have the unknown format {logits.dtype!r:.20}"
    if not 0 < logits.vocab <= logits.padded:
        return f"logits have {logits.vocab} entries, padded to {logits.padded}"
    if manifest.tokenizer is not None:
        ids = [*manifest.tokenizer.eos_ids, manifest.tokenizer.bos_id or 0]
        if max(ids) >= logits.vocab:
            return f"the token id {max(ids)} is outside the vocabulary of {logits.vocab}"
    return ""


def _check_entry(manifest: Manifest, entry: Entry, program: bytes) -> str:
    if entry.offset % ENTRY_ALIGNMENT or entry.offset + entry.bytes > len(program):
        return f"bytes {entry.offset} to {entry.offset + entry.bytes} of {len(program)} are misplaced"
    missing = [name for name in ArgumentNames.REQUIRED if name not in entry.arguments]
    if missing:
        return f"the argument {missing[0]!r} is missing"
    for name, index in entry.arguments.items():
        if index + (2 if name in ArgumentNames.ADDRESSES else 1) > entry.argument_words:
            return f"the argument {name!r:.60} is at word {index} of {entry.argument_words}"
    try:
        image = memoryview(program)[entry.offset : entry.offset + entry.bytes]
        isa = instruction_set(manifest.generation)
        lengths = [_count_instructions(words.tolist()) for _, _, words in split_image(isa, image)]
    except WordlineError as error:
        return error.what
    if None in lengths:
        return "an instruction runs past the end of its stream"
    for r in entry.provenance:
        count = lengths[r.stream] if r.stream < len(lengths) else None
        if count is None or not r.first <= r.last < count:
            return f"the source range {r.op!r:.60} names instructions {r.first}-{r.last} of stream {r.stream}"
    return ""


def _count_instructions(words: list[int]) -> int | None:
    """Instructions of a stream by their lengths alone; None if the last one is cut off or a length is 0."""
    at = count = 0
    while at < len(words):
        length = words[at] >> OPCODE_BITS & ((1 << LENGTH_BITS) - 1)
        if length == 0:
            return None
        at += length
        count += 1
    return count if at == len(words) else None
