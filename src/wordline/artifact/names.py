"""What tables call the owners of memory."""

from __future__ import annotations

PARAMETERS = "vector parameters"
"""Owner of the rows that norm weights and tables share."""


def starred(name: str) -> str:
    """A dotted name with its numbers replaced by ``*``, so that all layers have the same."""
    return ".".join("*" if part.isdigit() else part for part in name.split("."))
