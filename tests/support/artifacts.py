"""A tiny hand-written artifact: one program that any device of two channels runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from wordline.artifact import (
    ArgumentNames,
    ArtifactContents,
    EntryContents,
    KvLayout,
    LogitsOutput,
    MachineRef,
    MemoryMap,
    ModelInfo,
    Range,
    TokenizerInfo,
    WeightPlacement,
)
from wordline.isa import instruction_set
from wordline.isa.affine import affine
from wordline.isa.declare import Engine
from wordline.isa.instruction import Instr, make
from wordline.isa.program import Program, Stream
from wordline.machines import Machine, load_machine

ARGUMENTS = {name: i + (i > 4) for i, name in enumerate(ArgumentNames.REQUIRED)}
ARGUMENT_WORDS = 8
VOCAB, PADDED = 20, 32


def counting_program(machine: Machine) -> Program:
    """Next token = (token + position) mod 16; "logits" are 32 bf16 of weight row 0 of channel 0, bank 0.

    Order of events: the channel stream reads two weight columns into scratch, then the link stream sends them to the
    host if the flags say so.
    """
    isa = instruction_set(machine.generation)

    def op(name: str, **values: Any) -> Instr:
        return make(isa, name, **values)

    channel = (
        op("RD", bank=0, row=0, column=0, count=2, target=0),
        op("SIGNAL", signal=0),
    )
    vector = (
        op("LDA", rd=2, index=ARGUMENTS["token"]),
        op("LDA", rd=3, index=ARGUMENTS["position"]),
        op("AND", rd=4, a=affine(0, (2, 1), (3, 1)), b=15),
        op("STA", index=ARGUMENTS["next_token"], value=affine(0, (4, 1))),
    )
    link = (
        op("LDA", rd=2, index=ARGUMENTS["flags"]),
        op("SHR", rd=3, a=affine(0, (2, 1)), b=1),
        op("WAIT", signal=0, value=1),
        op(
            "XOUT",
            slot=ARGUMENTS["logits_address"],
            scratch=0,
            stride=0,
            blocks=affine(0, (3, 1)),
            bytes=2 * PADDED,
            offset=0,
        ),
    )
    channels = (1 << machine.organisation.channels) - 1
    return Program(
        isa,
        (
            Stream(Engine.CHANNEL, channels, channel),
            Stream(Engine.VECTOR, 0, vector),
            Stream(Engine.LINK, 0, link),
        ),
    )


def tiny_contents(machine: Machine | None = None, **changes: Any) -> ArtifactContents:
    """Contents with every kind of record in it; ``changes`` replace fields."""
    machine = machine or load_machine("gddr6-aim-chip")
    o = machine.organisation
    weights = np.arange(2 * o.channels * o.banks * o.columns * machine.bank_unit.lanes, dtype=np.uint32)
    block = (0x3F80 + weights % 97).astype(np.uint16)
    contents = ArtifactContents(
        generation=machine.generation,
        machine=MachineRef(machine.name, machine.hash),
        model=ModelInfo("tiny", "LlamaForCausalLM", "tiny.gguf", "0" * 64, 1234, SHAPE),
        entries={
            "decode": EntryContents(
                counting_program(machine).to_bytes(),
                ARGUMENTS,
                ARGUMENT_WORDS,
                (
                    Range(0, 0, 1, "logits", "linear", "model.py:1"),
                    Range(1, 0, 3, "argmax", "vector", "model.py:2"),
                    Range(2, 0, 3, "send", "link", "model.py:3"),
                ),
            )
        },
        memory=MemoryMap(
            weight_rows=2,
            weights=(WeightPlacement("w", 0, 2, "bf16", (20, 8)),),
            kv=KvLayout(2, 1, 64, 256, 32, 2, 1, 2, 1000),
            scratch=(),
            envelope=(),
        ),
        logits=LogitsOutput("bf16", VOCAB, PADDED),
        weights=[block],
        tokenizer=TokenizerInfo(None, None, (15,), False),
        tokenizer_json=TOKENIZER_JSON,
    )
    return dataclasses.replace(contents, **changes)


SHAPE: Mapping[str, int] = {
    "layers": 2,
    "hidden": 64,
    "ffn": 128,
    "heads": 1,
    "kv_heads": 1,
    "head_dim": 64,
    "vocab": VOCAB,
}
TOKENIZER_JSON = (
    b'{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":null,'
    b'"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},'
    b'"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,'
    b'"use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,'
    b'"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{"a":0,"b":1,'
    b'"c":2,"d":3,"e":4,"f":5,"g":6,"h":7,"i":8,"j":9,"k":10,"l":11,"m":12,"n":13,"o":14,"p":15,"\\u00c3":16,'
    b'"\\u00a9":17,"\\u0120":18,"z":19},"merges":[]}}'
)
