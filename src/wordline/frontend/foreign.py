"""Errors of other libraries, as text for ours."""

from __future__ import annotations

_LIMIT = 400


def summary(error: BaseException) -> str:
    """What an exception of another library says, on one line of bounded length."""
    text = " ".join(str(error).split())
    if not text or isinstance(error, KeyError | AttributeError | TypeError):
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= _LIMIT else f"{text[:_LIMIT]} ..."
