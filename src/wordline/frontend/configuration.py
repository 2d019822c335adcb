"""Model configurations: a config.json, or fields under transformers' names, to transformers' object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from wordline.errors import WordlineError
from wordline.frontend.foreign import summary

MAX_LAYERS = 4096
"""Far more than any model has: a number beyond it is damage, and tracing that many layers would not end."""


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
    layers = getattr(config, "num_hidden_layers", None)
    if layers is not None and not 1 <= layers <= MAX_LAYERS:
        raise WordlineError(
            "unreadable-config",
            f"the configuration says {layers} layers; a model has 1 to {MAX_LAYERS}",
            where=where,
            remedy="compare it with the one the model's publisher provides",
        )
    return config
