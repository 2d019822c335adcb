"""``wordline generate``: text from a model on a device, and the report of what it took."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from wordline.cli.options import add_json_option, positive
from wordline.cli.output import print_json
from wordline.cli.progress import progress
from wordline.cli.targets import add_model_argument, add_run_options, open_target
from wordline.errors import WordlineError

if TYPE_CHECKING:
    from wordline.engine import Tokenizer

NAME = "generate"
HELP = "generate text"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model_argument(parser, "GGUF file, model folder or artifact")
    parser.add_argument("--prompt", metavar="TEXT", help="text to continue (default: standard input)")
    parser.add_argument(
        "--prompt-length",
        type=positive,
        metavar="N",
        help="timing only: as if N tokens had been given; their own steps are not simulated but the last",
    )
    parser.add_argument("--chat", action="store_true", help="the prompt is a message; the model answers it")
    parser.add_argument("--max-tokens", type=positive, default=128, metavar="N", help="at most (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default: %(default)s)")
    parser.add_argument("--top-k", type=int, default=0, metavar="K", help="draw from the K best (default: all)")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="draw from the best of probability P")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: %(default)s)")
    add_run_options(parser)
    parser.add_argument("--no-timing", action="store_true", help="compute values only; no cycles in the report")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Generate: text on standard output as it comes, progress and report on standard error."""
    from wordline.engine.sampling import Sampling

    sampling = Sampling(args.temperature, args.top_k, args.top_p, args.seed)
    prompt = _prompt(args)
    with progress() as report:
        artifact, spec = open_target(args, report)

    from wordline.engine import Session, Tokenizer, check_prompt, checked_context, generate, make_report
    from wordline.runtime import Residency, open_device

    context = checked_context(artifact, args.context)
    tokenizer = None if prompt is None else Tokenizer(artifact)
    tokens = None if tokenizer is None else _encode(tokenizer, str(prompt), args.chat)
    check_prompt(args.prompt_length if tokens is None else len(tokens), context)
    if tokens is None:
        tokens = [0] * args.prompt_length
    device = open_device(spec)
    model = Residency(device).acquire(artifact)
    text = _Text(tokenizer, shown=not args.json and model.functional)
    ends = tokenizer.info.eos_ids if tokenizer else ()
    with Session(model, context, timing=not args.no_timing) as session:
        if tokenizer is None:
            session.skip_to(len(tokens) - 1)
        run = generate(session, tokens[session.position :], sampling, args.max_tokens, ends, text.push)
    text.finish()

    made = dataclasses.replace(make_report(artifact, device, run), prompt_tokens=len(tokens))
    if args.json:
        document = {"text": text.text if model.functional else None, "prompt_tokens": tokens}
        print_json({**document, "tokens": run.tokens, "stop": run.stop, "report": dataclasses.asdict(made)})
        return 0
    print("\n" + made.text(), file=sys.stderr)
    return 0


class _Text:
    """Collects the text, and shows it as it comes."""

    def __init__(self, tokenizer: Tokenizer | None, shown: bool) -> None:
        self._stream = tokenizer.stream() if tokenizer else None
        self._shown = shown
        self.text = ""

    def push(self, token: int) -> None:
        """One more token."""
        if self._stream is not None:
            self._add(self._stream.push(token))

    def finish(self) -> None:
        """The end of the text, and of the line."""
        if self._stream is not None:
            self._add(self._stream.finish())
        if self._shown:
            print(flush=True)

    def _add(self, piece: str) -> None:
        self.text += piece
        if self._shown and piece:
            print(piece, end="", flush=True)


def _prompt(args: argparse.Namespace) -> str | None:
    """The text to start from; None if only its length is given."""
    if args.prompt_length:
        if args.prompt is not None or args.chat:
            raise WordlineError(
                "conflicting-options",
                "--prompt-length stands for a prompt, and there is a --prompt or --chat too",
                remedy="give a text, or a length for timing only",
            )
        return None
    if args.prompt is not None:
        return _text(lambda: str(args.prompt), "--prompt")
    if sys.stdin is None or sys.stdin.isatty():
        raise WordlineError("no-prompt", "there is no prompt", remedy="give one with --prompt, or as standard input")
    return _text(sys.stdin.read, "standard input")


def _text(read: Callable[[], str], where: str) -> str:
    """What ``read`` returns. Bytes that are no text in the encoding of the locale come as surrogates: UTF-8, maybe."""
    try:
        return read().encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeError as error:
        raise WordlineError(
            "bad-prompt", "the prompt is not UTF-8 text", where=where, remedy="convert it to UTF-8"
        ) from error


def _encode(tokenizer: Tokenizer, prompt: str, chat: bool) -> list[int]:
    if chat:
        return tokenizer.encode_chat([{"role": "user", "content": prompt}])
    return tokenizer.encode(prompt)
