"""``wordline limits``: how fast a machine's banks could be at best."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from wordline.cli.options import add_json_option, add_machine_options, machine_of, positive
from wordline.cli.output import print_json, print_tables, table
from wordline.machines import Machine
from wordline.sim.limits import DecodeLimits, GemvLimits, decode_limits, gemv_limits
from wordline.sim.shapes import ModelShape, model_shape

NAME = "limits"
HELP = "physical limits (L0 to L3) of matrix-vector products and decode steps"

DEFAULT_MODEL = "SmolLM2-135M"
DEFAULT_CONTEXTS = (128, 1024, 4096, 8000)


@dataclass(frozen=True)
class _Matrix:
    what: str
    m: int
    k: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--gemv", action="append", type=_gemv, metavar="MxK", help="a matrix shape; may be repeated")
    parser.add_argument(
        "--model", metavar="NAME|CONFIG.JSON", help=f"a model's shape (default, without --gemv: {DEFAULT_MODEL})"
    )
    parser.add_argument(
        "--context",
        action="append",
        type=positive,
        metavar="TOKENS",
        help=f"tokens in the KV cache; may be repeated (default: {', '.join(map(str, DEFAULT_CONTEXTS))})",
    )
    parser.add_argument("--batch", type=positive, default=1, help="sequences decoded together (default: %(default)s)")
    parser.add_argument("--channels", type=positive, help="channels used (default: all of the machine's)")
    add_machine_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    machine = machine_of(args)
    shape = model_shape(args.model or DEFAULT_MODEL) if args.model or not args.gemv else None
    matrices = (args.gemv or []) + (_matrices(shape) if shape else [])
    gemvs = [(matrix, gemv_limits(machine, matrix.m, matrix.k, args.channels)) for matrix in matrices]
    contexts = args.context or DEFAULT_CONTEXTS if shape else ()
    steps = [
        (context, decode_limits(machine, shape, args.batch, context, args.channels)) for context in contexts if shape
    ]
    if args.json:
        print_json(_document(machine, args, gemvs, shape, steps))
        return 0
    channels = args.channels or machine.organisation.channels
    parts: list[Any] = [f"machine {machine.name} ({machine.hash[:12]}), {channels} channels; device time, banks only"]
    parts += ["", _gemv_table(gemvs)]
    if shape:
        parts += ["", _decode_table(machine, shape, args.batch, channels, steps)]
    print_tables(*parts)
    return 0


def _gemv(text: str) -> _Matrix:
    m, cross, k = text.lower().partition("x")
    try:
        if cross:
            return _Matrix(text, positive(m), positive(k))
    except argparse.ArgumentTypeError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not of the form MxK, for example 4096x4096")


def _matrices(shape: ModelShape) -> list[_Matrix]:
    """The matrices of one layer and of the logits, projections of one input stacked."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return [
        _Matrix("query, key, value", queries + 2 * keys, shape.hidden),
        _Matrix("attention output", shape.hidden, queries),
        _Matrix("gate, up", 2 * shape.ffn, shape.hidden),
        _Matrix("down", shape.hidden, shape.ffn),
        _Matrix("logits", shape.vocab, shape.hidden),
    ]


def _gemv_table(gemvs: list[tuple[_Matrix, GemvLimits]]) -> Any:
    rows = [
        [
            matrix.what,
            str(matrix.m),
            str(matrix.k),
            *(f"{value / 1e3:.3f}" for value in (limits.l0, limits.l1, limits.l2, limits.l3)),
            f"{100 * limits.l0 / limits.l3:.1f} %",
        ]
        for matrix, limits in gemvs
    ]
    columns = ["matrix", "M", "K", "L0 µs", "L1 µs", "L2 µs", "L3 µs", "L0/L3"]
    return table("matrix-vector products", columns, rows)


def _decode_table(
    machine: Machine, shape: ModelShape, batch: int, channels: int, steps: list[tuple[int, DecodeLimits]]
) -> Any:
    memory = channels * machine.organisation.channel_bytes
    rows = [
        [
            str(context),
            f"{limits.weight_bytes / 1e9:.3f}",
            f"{limits.kv_bytes / 1e9:.3f}",
            "yes" if limits.weight_bytes + limits.kv_bytes <= memory else "no",
            *(f"{value / 1e6:.4f}" for value in (limits.l0, limits.l1, limits.l2, limits.l2b, limits.attention.l2)),
            f"{batch * 1e9 / limits.l2b:.1f}",
        ]
        for context, limits in steps
    ]
    columns = ["context", "weights GB", "KV GB", "fits", "L0 ms", "L1 ms", "L2 ms", "L2B ms", "attention L2 ms"]
    title = f"one decode step of {shape.name}, batch {batch}"
    return table(title, [*columns, "tokens/s at L2B"], rows, left=0)


def _document(
    machine: Machine,
    args: argparse.Namespace,
    gemvs: list[tuple[_Matrix, GemvLimits]],
    shape: ModelShape | None,
    steps: list[tuple[int, DecodeLimits]],
) -> dict[str, Any]:
    channels = args.channels or machine.organisation.channels
    memory = channels * machine.organisation.channel_bytes
    return {
        "machine": {"name": machine.name, "hash": machine.hash},
        "channels": channels,
        "clock": "device",
        "gemv": [
            {
                "matrix": matrix.what,
                "m": matrix.m,
                "k": matrix.k,
                "L0_ns": limits.l0,
                "L1_ns": limits.l1,
                "L2_ns": limits.l2,
                "L3_ns": limits.l3,
            }
            for matrix, limits in gemvs
        ],
        "decode": [
            {
                "model": shape.name if shape else None,
                "batch": args.batch,
                "context": context,
                "weight_bytes": limits.weight_bytes,
                "kv_bytes": limits.kv_bytes,
                "fits": limits.weight_bytes + limits.kv_bytes <= memory,
                "L0_ns": limits.l0,
                "L1_ns": limits.l1,
                "L2_ns": limits.l2,
                "L2B_ns": limits.l2b,
                "attention_L2_ns": limits.attention.l2,
            }
            for context, limits in steps
        ],
    }
