"""Shapes of decoder-only transformers: all that limits and timing need to know of a model."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from wordline.errors import WordlineError


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder-only transformer with a gated feed-forward network; all counts, none in bytes.

    Args:
        name: what tables call it.
        layers: transformer blocks.
        hidden: width of the residual stream.
        ffn: width of the gated feed-forward network.
        heads: query heads; heads that share a KV head are grouped.
        kv_heads: key and value heads; divides ``heads``.
        head_dim: elements of one head.
        vocab: rows of the output matrix.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    def __post_init__(self) -> None:
        for name, value in self._sizes().items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise _bad_shape(self.name, f"{name} is {value!r}, not a positive whole number")
        if self.heads % self.kv_heads:
            raise _bad_shape(self.name, f"{self.heads} heads cannot share {self.kv_heads} KV heads evenly")

    def _sizes(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}

    @property
    def matrix_elements(self) -> int:
        """Weights that one decode step multiplies: projections, feed-forward matrices and the output matrix."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.ffn) + self.vocab * self.hidden

    def kv_elements(self, context: int) -> int:
        """Elements of the keys and values of one sequence of ``context`` tokens."""
        return 2 * self.layers * context * self.kv_heads * self.head_dim

    def config_fields(self) -> dict[str, int]:
        """The sizes by their names in a Hugging Face ``config.json``."""
        return {
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
        }

    @classmethod
    def from_config(cls, path: str | Path) -> ModelShape:
        """Read the shape from a Hugging Face ``config.json``.

        Raises:
            WordlineError: "config-not-found", "bad-config" (not JSON), or "bad-model-shape" (a size is missing or
                impossible).
        """
        file = Path(path)
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise WordlineError(
                "config-not-found",
                f"the model config cannot be read: {error.strerror or error}",
                where=str(file),
                remedy="give the path of a config.json",
            ) from error
        except ValueError as error:
            raise _bad_config(file, f"not JSON ({error})") from error
        if not isinstance(config, dict):
            raise _bad_config(file, "not a JSON object")
        return cls._from_mapping(file.parent.name if file.name == "config.json" else file.stem, config)

    @classmethod
    def _from_mapping(cls, name: str, config: Mapping[str, Any]) -> ModelShape:
        def size(key: str, default: int | None = None) -> int:
            value = default if config.get(key) is None else config[key]
            if isinstance(value, bool) or not isinstance(value, int):
                raise _bad_shape(name, f"{key} is {'missing' if value is None else repr(value)}")
            return value

        hidden, heads = size("hidden_size"), size("num_attention_heads")
        return cls(
            name=name,
            layers=size("num_hidden_layers"),
            hidden=hidden,
            ffn=size("intermediate_size"),
            heads=heads,
            kv_heads=size("num_key_value_heads", heads),
            # Configs written before the field existed imply it.
            head_dim=size("head_dim", hidden // max(heads, 1)),
            vocab=size("vocab_size"),
        )


@cache
def known_shapes() -> dict[str, ModelShape]:
    """The shapes of ``shapes.toml`` by model name."""
    text = resources.files("wordline.sim").joinpath("shapes.toml").read_text(encoding="utf-8")
    return {name: ModelShape(name=name, **sizes) for name, sizes in tomllib.loads(text).items()}


def model_shape(name_or_path: str) -> ModelShape:
    """A published model by name (any case), or the shape in a ``config.json`` given by its path.

    Raises:
        WordlineError: "unknown-model-shape" with the nearest names, or what :meth:`ModelShape.from_config` raises.
    """
    shapes = known_shapes()
    by_lower = {name.lower(): shape for name, shape in shapes.items()}
    if name_or_path.lower() in by_lower:
        return by_lower[name_or_path.lower()]
    if name_or_path.endswith(".json") or "/" in name_or_path:
        return ModelShape.from_config(name_or_path)
    near = difflib.get_close_matches(name_or_path.lower(), by_lower, n=3, cutoff=0.4)
    names = [by_lower[name].name for name in near] or list(shapes)
    raise WordlineError(
        "unknown-model-shape",
        f"no published model shape is named {name_or_path!r}",
        remedy=f"use {' or '.join(names)}, or the path of a config.json",
    )


def _bad_shape(name: str, what: str) -> WordlineError:
    return WordlineError(
        "bad-model-shape", what, where=f"model {name}", remedy="give the config.json of a decoder-only transformer"
    )


def _bad_config(file: Path, what: str) -> WordlineError:
    return WordlineError(
        "bad-config", f"the model config is {what}", where=str(file), remedy="give the path of a valid config.json"
    )
