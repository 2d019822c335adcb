"""Teacher-forced logits: what the model says about each next token of a given text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wordline.engine.generate import check_prompt
from wordline.engine.session import Session, Want
from wordline.errors import WordlineError


@dataclass(frozen=True)
class PositionScore:
    """What the model says after one input position.

    Log of the sum of exp over all logits, the top logits (descending; equal ones by id), and the logit of the input
    token that follows (None at the end).
    """

    logsumexp: float
    top_ids: list[int]
    top_logits: list[float]
    next_logit: float | None


def score(
    session: Session,
    tokens: Sequence[int],
    top_k: int,
    on_position: Callable[[int], None] = lambda position: None,
) -> list[PositionScore]:
    """Feed ``tokens`` to a fresh session and return one entry a position; ``on_position`` gets each position done.

    Raises:
        WordlineError: as :func:`check_prompt`, :meth:`Session.step`; "values-needed" if the session computes none;
            "bad-logits" (not finite).
    """
    if not session.functional:
        raise WordlineError(
            "values-needed",
            f"the device {session.device} computes no values",
            remedy=f"use sim:{session.device.machine.name}",
        )
    check_prompt(len(tokens), session.context - session.position)
    scores = []
    for index, token in enumerate(tokens):
        logits = session.step(token, Want.LOGITS).logits
        assert logits is not None
        if not np.isfinite(logits).all():
            raise WordlineError(
                "bad-logits",
                f"the device returned logits that are no finite numbers at position {index}",
                remedy="check the model's weights",
            )
        wide = logits.astype(np.float64)
        top = np.argsort(-logits, kind="stable")[:top_k]
        peak = wide.max()
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        scores.append(
            PositionScore(
                float(peak + np.log(np.exp(wide - peak).sum())),
                [int(i) for i in top],
                [float(logits[i]) for i in top],
                None if following is None else float(logits[following]),
            )
        )
        on_position(index)
    return scores
