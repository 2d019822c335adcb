"""The generation loop: prompt in, tokens out."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from wordline.engine.sampling import Sampler, Sampling
from wordline.engine.session import Session, Step, Want
from wordline.errors import WordlineError


@dataclass
class Generation:
    """What a run did. Cycles are device time; seconds are host time, measured.

    ``stop`` is "eos", "length" or "context". ``prompt_cycles`` and ``decode_cycles`` have one entry a step; a decode
    step is one that chose a token, so the last prompt token's step is the first of them.
    """

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    stop: str = "length"
    prompt_cycles: list[int] = field(default_factory=list)
    decode_cycles: list[int] = field(default_factory=list)
    position: int = 0
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    sampling_seconds: float = 0.0


def check_prompt(length: int, context: int) -> None:
    """Check the number of tokens of a prompt. Raises ``WordlineError``: "empty-prompt" or "prompt-too-long"."""
    if length < 1:
        raise WordlineError("empty-prompt", "the prompt has no tokens", remedy="give a text with --prompt")
    if length > context:
        raise WordlineError(
            "prompt-too-long",
            f"the prompt has {length} tokens, the context is {context}: {length - context} too many",
            remedy="shorten the prompt, or compile with a longer --context if the model allows it",
        )


def generate(
    session: Session,
    prompt: Sequence[int],
    sampling: Sampling,
    max_tokens: int,
    eos_ids: Collection[int] = (),
    on_token: Callable[[int], None] = lambda token: None,
) -> Generation:
    """Feed ``prompt`` to a fresh session and generate up to ``max_tokens`` tokens; ``on_token`` gets each as it comes.

    Only the last prompt token's step computes logits; greedy choice is made on the device, and no logits travel. On a
    session that computes no values, all tokens are 0 and none ends the text.

    Raises:
        WordlineError: as :func:`check_prompt`, before anything runs, and :meth:`Session.step`.
    """
    check_prompt(len(prompt), session.context - session.position)
    run, sampler = Generation(list(prompt)), Sampler(sampling)
    want = Want.NEXT if sampling.greedy else Want.LOGITS
    start = time.perf_counter()
    for token in prompt[:-1]:
        run.prompt_cycles.append(session.step(token, Want.NOTHING).cycles)
    run.prompt_seconds = time.perf_counter() - start
    token = prompt[-1]
    while len(run.tokens) < max_tokens:
        if session.position == session.context:
            run.stop = "context"
            break
        start = time.perf_counter()
        step = session.step(token, want)
        run.decode_seconds += time.perf_counter() - start
        run.decode_cycles.append(step.cycles)
        start = time.perf_counter()
        token = _choose(step, sampler)
        run.sampling_seconds += time.perf_counter() - start
        run.tokens.append(token)
        if session.functional and token in eos_ids:
            run.stop = "eos"
            break
        on_token(token)
    run.position = session.position
    return run


def _choose(step: Step, sampler: Sampler) -> int:
    if step.logits is not None:
        return sampler.pick(step.logits)
    return step.next_token if step.next_token is not None else 0
