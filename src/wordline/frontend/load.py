"""Load a model: GGUF file, Hugging Face directory or bare configuration -> graph, configuration, tokenizer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PretrainedConfig

from wordline.errors import WordlineError
from wordline.frontend import checkpoint, gguf_model
from wordline.frontend.configuration import config_at, config_of
from wordline.frontend.export import ExportedStep, export_decode_step
from wordline.frontend.gguf_file import GGUFFile
from wordline.frontend.lower import lower
from wordline.frontend.repeat import TRACED_LAYERS, layer_of, layers_are_alike, repeat_layers
from wordline.frontend.tokenizer import TokenizerFiles, tokenizer_of
from wordline.graph.ir import Graph
from wordline.knobs import expanded

_WeightReader = Callable[[ExportedStep], Mapping[str, NDArray[np.generic]]]


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model ready to compile.

    Attributes:
        graph: its decode step, canonical; weights bound as float32 unless loaded from a bare configuration.
        config: the model's configuration as plain data (transformers' field names).
        tokenizer: what the runtime needs to turn text into tokens; None if the source has none.
        metadata: "name", "source", "architecture", "max_context", "parameters" (count of weight elements),
            "model_layers" (of the whole model, also when only some are imported).
    """

    graph: Graph
    config: dict[str, Any]
    tokenizer: TokenizerFiles | None
    metadata: dict[str, Any]


def load_model(source: str | Path, bind: bool = True, layers: int | None = None) -> ImportedModel:
    """Load a model offline.

    Args:
        source: a .gguf file, a directory with config.json and safetensors, or a config.json alone.
        bind: read the weights; False leaves them unbound. A config.json alone never has any.
        layers: import only this many layers, the first ones (what-if; needs ``bind=False``).

    Raises:
        WordlineError: the source is missing, damaged, of an unsupported architecture, or contains operations that
            have no lowering; "bad-layers".
    """
    path = expanded(source)
    if layers is not None:
        if bind:
            raise ValueError("only a model without weights can be imported in part")
        return _import(*_described(path), None, None, layers)
    if path.is_dir():
        return _load_directory(path, bind)
    if path.suffix == ".json" or not path.exists():
        return _import(*_described(path), None, None)
    return _load_gguf(path, bind)


def load_config(name: str, fields: Mapping[str, Any], layers: int | None = None) -> ImportedModel:
    """A model without weights from its configuration as plain data (what a config.json holds).

    Raises:
        WordlineError: as :func:`load_model`.
    """
    return _import(name, Path(name), config_of(fields, name), None, None, layers)


def _described(path: Path) -> tuple[str, Path, PretrainedConfig]:
    """Name, source and configuration of the model at ``path``, weights and tokenizer left alone."""
    if path.is_dir():
        return path.resolve().name, path, config_at(path / "config.json")
    if not path.exists():
        raise WordlineError(
            "missing-model",
            f"there is no model at '{path}'",
            remedy="give a .gguf file, a model directory or a config.json",
        )
    if path.suffix == ".json":
        return path.parent.name or path.stem, path, config_at(path)
    return path.stem, path, gguf_model.config_of(GGUFFile(path))


def _load_gguf(path: Path, bind: bool) -> ImportedModel:
    file = GGUFFile(path)
    config = gguf_model.config_of(file)
    tokenizer = tokenizer_of(path, config, file.metadata)

    def read(step: ExportedStep) -> Mapping[str, NDArray[np.generic]]:
        return gguf_model.weights_of(file, config, step.parameters)

    return _import(path.stem, path, config, tokenizer, read if bind else None)


def _load_directory(path: Path, bind: bool) -> ImportedModel:
    config = config_at(path / "config.json")
    tokenizer = tokenizer_of(path, config)

    def read(step: ExportedStep) -> Mapping[str, NDArray[np.generic]]:
        return checkpoint.weights_of(path, step.parameters, step.aliases)

    return _import(path.resolve().name, path, config, tokenizer, read if bind else None)


def _import(
    name: str,
    source: Path,
    config: PretrainedConfig,
    tokenizer: TokenizerFiles | None,
    read: _WeightReader | None,
    layers: int | None = None,
) -> ImportedModel:
    model_layers = config.num_hidden_layers
    if layers is not None:
        config = _first_layers(config, layers, source)
    if read is None and layers_are_alike(config):
        graph, parameters = _repeated(name, config, source)
    else:
        step = export_decode_step(config)
        graph = lower(step, name, _checked(read(step), source) if read is not None else None)
        parameters = _parameter_count(step.parameters)
    _check_attention(graph, config, source)
    metadata = {
        "name": name,
        "source": str(source),
        "architecture": config.model_type,
        "max_context": config.max_position_embeddings,
        "model_layers": model_layers,
        "parameters": parameters,
    }
    return ImportedModel(graph, config.to_dict(), tokenizer, metadata)


def _checked(weights: Mapping[str, NDArray[np.generic]], source: Path) -> Mapping[str, NDArray[np.generic]]:
    """``weights``, all of them finite: one that is not makes every answer of the model nonsense."""
    for name, data in weights.items():
        if data.size and not (np.isfinite(data.max()) and np.isfinite(data.min())):  # both keep a NaN
            raise WordlineError(
                "bad-weights",
                f"the weight '{name}' holds values that are no finite numbers",
                where=str(source),
                remedy="get the file again, or convert the model again",
            )
    return weights


def _repeated(name: str, config: PretrainedConfig, source: Path) -> tuple[Graph, int]:
    """Graph without weights and count of weight elements, traced in part where all layers are alike."""
    layers = config.num_hidden_layers
    step = export_decode_step(_first_layers(config, TRACED_LAYERS, source))
    graph = repeat_layers(lower(step, name, None), layers)
    if graph is None:
        step = export_decode_step(config)
        return lower(step, name, None), _parameter_count(step.parameters)
    last = {n: shape for n, shape in step.parameters.items() if layer_of(n) == TRACED_LAYERS - 1}
    return graph, _parameter_count(step.parameters) + (layers - TRACED_LAYERS) * _parameter_count(last)


def _parameter_count(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes.values())


def _first_layers(config: PretrainedConfig, layers: int, source: Path) -> PretrainedConfig:
    """The configuration of the first ``layers`` layers of a model."""
    if not 1 <= layers <= config.num_hidden_layers:
        raise WordlineError(
            "bad-layers",
            f"{layers} layers are wanted, the model has {config.num_hidden_layers}",
            where=str(source),
            remedy=f"give --layers from 1 to {config.num_hidden_layers}",
        )
    config = copy.deepcopy(config)
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    return config


def _check_attention(graph: Graph, config: PretrainedConfig, source: Path) -> None:
    """A layer whose attention does not go through transformers' interface would silently see one token only."""
    layers = {op.attrs["layer"] for op in graph.ops if op.kind == "attention"}
    if layers != set(range(config.num_hidden_layers)):
        raise WordlineError(
            "unsupported-architecture",
            f"only {len(layers)} of the {config.num_hidden_layers} layers of '{config.model_type}' "
            "have an attention that can be recognised",
            where=str(source),
            remedy="use a decoder-only model such as Llama, Mistral or Qwen3",
        )
