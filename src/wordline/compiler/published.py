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
    sizes = {
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
    }
    return shape.name, sizes | _published()[shape.name]
