"""Configurations of published models, so that a model can be compiled for its shape when nothing of it is at hand."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from wordline.sim.shapes import model_shape


@cache
def _published() -> dict[str, dict[str, Any]]:
    text = resources.files("wordline.compiler").joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def published_names() -> list[str]:
    """The models that :func:`published_config` knows."""
    return list(_published())


def published_config(name: str) -> tuple[str, dict[str, Any]]:
    """The name of a published model as it is written (``name`` in any case), and the fields of its config.json.

    Raises:
        WordlineError: "unknown-model-shape" with the nearest names.
    """
    shape = model_shape(name)
    return shape.name, shape.config_fields() | _published()[shape.name]
