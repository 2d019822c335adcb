"""Model configurations: a config.json, or fields under transformers' names, to transformers' object."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from wordline.errors import WordlineError
from wordline.frontend.foreign import summary

MAX_LAYERS = 1024
"""Far more than any model has: a number beyond it is damage, and tracing that many layers would not end."""
_ANY = 1 << 62
_SIZES = {
    "num_hidden_layers": MAX_LAYERS,
    "hidden_size": _ANY,
    "intermediate_size": _ANY,
    "num_attention_heads": _ANY,
    "vocab_size": _ANY,
    "max_position_embeddings": _ANY,
}


def config_at(path: Path) -> PretrainedConfig:
    """The configuration in the file ``path``. Raises ``WordlineError``: "missing-model", or as :func:`config_of`."""
    if not path.is_file():
        raise WordlineError(
            "missing-model",
            "the model directory has no config.json",
            where=str(path.parent),
            remedy="give a .gguf file, a model directory or a config.json",
        )
    try:
        fields = json.loads(path.read_bytes())
        fields["model_type"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WordlineError(
            "unreadable-config",
            f"the configuration is not a JSON object with a 'model_type' ({summary(error)})",
            where=str(path),
            remedy="give the config.json of a Hugging Face causal language model",
        ) from error
    return config_of(fields, str(path))


def config_of(fields: Mapping[str, Any], where: str) -> PretrainedConfig:
    """The configuration object of ``fields``, which name their "model_type"; ``where`` they are from.

    Raises:
        WordlineError: "unsupported-architecture", "unreadable-config".
    """
    model_type = fields["model_type"]
    try:
        config: PretrainedConfig = AutoConfig.for_model(
            model_type, **{key: value for key, value in fields.items() if key != "model_type"}
        )
    except Exception as error:  # an unknown type is a ValueError; each configuration class validates in its own way
        if str(error).startswith("Unrecognized model identifier"):
            raise WordlineError(
                "unsupported-architecture",
                f"'{model_type}' is not an architecture that transformers knows",
                where=where,
                remedy="use a decoder-only model such as Llama, Mistral or Qwen3",
            ) from error
        raise WordlineError(
            "unreadable-config",
            f"the configuration is not valid: {summary(error)}",
            where=where,
            remedy="compare it with the one the model's publisher provides",
        ) from error
    problem = _nonsense(config, fields)
    if problem:
        raise WordlineError(
            "unreadable-config",
            f"the configuration is not valid: {problem}",
            where=where,
            remedy="compare it with the one the model's publisher provides",
        )
    return config


def _nonsense(config: PretrainedConfig, fields: Mapping[str, Any]) -> str:
    """What transformers takes and no model can have; empty if there is none."""
    for name, most in _SIZES.items():
        size = getattr(config, name, 1)
        if isinstance(size, int) and not 1 <= size <= most:
            return f"{name} is {size}; it is from 1 to {most}" if most < _ANY else f"{name} is {size}"
    for name, value in _numbers(fields):
        if not math.isfinite(value):
            return f"{name} is {value}"
    return ""


def _numbers(fields: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The real numbers in ``fields`` and in the objects inside them, with their names."""
    for name, value in fields.items():
        if isinstance(value, float):
            yield name, value
        elif isinstance(value, Mapping):
            yield from _numbers(value)
