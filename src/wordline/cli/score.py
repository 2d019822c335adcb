"""``wordline score``: logits of a given sequence of tokens, so that another program can compare."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from wordline.cli.options import add_json_option, positive
from wordline.cli.output import print_json, print_tables, table
from wordline.cli.progress import progress
from wordline.cli.targets import add_model_argument, add_run_options, open_target
from wordline.errors import WordlineError

NAME = "score"
HELP = "logits of a given sequence of tokens"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_argument(parser, "GGUF file, model folder or artifact")
    parser.add_argument("--tokens", required=True, metavar="FILE", help="JSON list of token ids")
    parser.add_argument("--top-k", type=positive, default=5, metavar="K", help="logits to list (default: %(default)s)")
    add_run_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Feed the tokens and print one entry a position."""
    tokens = read_tokens(Path(args.tokens))
    with progress() as report:
        artifact, spec = open_target(args, report)

    from wordline.engine import Session, check_prompt, checked_context, score
    from wordline.runtime import Residency, open_device

    _check_ids(tokens, artifact.manifest.logits.vocab, args.tokens)
    context = checked_context(artifact, args.context)
    check_prompt(len(tokens), context)
    model = Residency(open_device(spec)).acquire(artifact)
    with Session(model, context, timing=False) as session:
        scores = score(session, tokens, args.top_k)
    if args.json:
        print_json({"positions": [dataclasses.asdict(entry) for entry in scores]})
        return 0
    rows = [
        [
            str(position),
            str(token),
            f"{entry.logsumexp:.5f}",
            "" if entry.next_logit is None else f"{entry.next_logit:.5f}",
            "  ".join(f"{i}: {x:.4f}" for i, x in zip(entry.top_ids, entry.top_logits, strict=True)),
        ]
        for position, (token, entry) in enumerate(zip(tokens, scores, strict=True))
    ]
    print_tables(table("", ["position", "token", "logsumexp", "next logit", "best"], rows, left=0))
    return 0


def read_tokens(path: Path) -> list[int]:
    """Read a JSON list of token ids. Raises ``WordlineError``: "tokens-not-found", "bad-tokens"."""
    try:
        values: Any = json.loads(path.read_bytes())
    except OSError as error:
        raise WordlineError(
            "tokens-not-found",
            f"the token file cannot be read: {error.strerror or error}",
            where=str(path),
            remedy="give the path of a JSON list of token ids",
        ) from error
    except (ValueError, RecursionError) as error:
        raise _bad_tokens(path, "the file is not JSON") from error
    if not isinstance(values, list):
        raise _bad_tokens(path, "the file holds no list")
    for index, value in enumerate(values):
        if type(value) is not int:
            raise _bad_tokens(path, f"entry {index} is {value!r:.40}, not a token id")
    return values


def _check_ids(tokens: list[int], vocab: int, path: str) -> None:
    for index, token in enumerate(tokens):
        if not 0 <= token < vocab:
            raise _bad_tokens(Path(path), f"entry {index}, token {token}, is outside the vocabulary of {vocab}")


def _bad_tokens(path: Path, what: str) -> WordlineError:
    return WordlineError("bad-tokens", what, where=str(path), remedy="write a JSON list of token ids: [1, 2, 3]")
