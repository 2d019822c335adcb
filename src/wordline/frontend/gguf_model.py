"""What a GGUF file says about a model, in transformers' terms: configuration and parameter names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from numpy.typing import NDArray
from transformers import PretrainedConfig

from wordline.errors import WordlineError
from wordline.frontend import configuration
from wordline.frontend.gguf_file import GGUFFile

_CONFIG_KEYS = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "embedding_length": "hidden_size",
    "rope.freq_base": "rope_theta",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.key_length": "head_dim",
    "vocab_size": "vocab_size",
}
"""GGUF key after "<architecture>." to the field of a transformers configuration."""

_MODEL_TYPES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""GGUF architecture to transformers model type."""

_NEEDED_FIELDS = {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size"}

_TOKEN_IDS = {
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.eos_token_id": "eos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}


def config_of(file: GGUFFile) -> PretrainedConfig:
    """The transformers configuration of the model in a GGUF file.

    Raises:
        WordlineError: "unsupported-architecture", "unsupported-gguf" (rotary scaling), "damaged-gguf" (a missing key),
            "unreadable-config" (values that make no model).
    """
    architecture = str(file.metadata.get("general.architecture"))
    if architecture not in _MODEL_TYPES:
        raise WordlineError(
            "unsupported-architecture",
            f"the GGUF file holds a model of the architecture '{architecture}'",
            where=str(file.path),
            remedy=f"use a file of one of the architectures {', '.join(sorted(_MODEL_TYPES))}, "
            "or the model's directory with safetensors",
        )
    scaling = file.metadata.get(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in file.tensors:
        raise WordlineError(
            "unsupported-gguf",
            f"the GGUF file scales its rotary embedding ({'by frequency factors' if scaling == 'none' else scaling})",
            where=str(file.path),
            remedy="load the model from its directory with safetensors and config.json",
        )
    fields: dict[str, Any] = {"tie_word_embeddings": "output.weight" not in file.tensors}
    for key, field in _CONFIG_KEYS.items():
        if f"{architecture}.{key}" in file.metadata:
            fields[field] = file.metadata[f"{architecture}.{key}"]
    for key, field in _TOKEN_IDS.items():
        if key in file.metadata:
            fields[field] = file.metadata[key]
    if "vocab_size" not in fields and "token_embd.weight" in file.tensors:
        fields["vocab_size"] = file.tensors["token_embd.weight"][0]
    if "head_dim" not in fields and f"{architecture}.rope.dimension_count" in file.metadata:
        fields["head_dim"] = file.metadata[f"{architecture}.rope.dimension_count"]
    missing = _NEEDED_FIELDS - set(fields)
    if missing:
        raise WordlineError(
            "damaged-gguf",
            f"the GGUF file does not say {', '.join(sorted(missing))}",
            where=str(file.path),
            remedy="convert the model again",
        )
    return configuration.config_of({"model_type": _MODEL_TYPES[architecture], **fields}, str(file.path))


def weights_of(
    file: GGUFFile, config: PretrainedConfig, parameters: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[np.generic]]:
    """The parameters of a model, float32, by transformers' names.

    Args:
        file: the open file.
        config: its configuration.
        parameters: names and shapes the model needs.

    Raises:
        WordlineError: "missing-weights", "wrong-shape", "unsupported-gguf" (a tensor that the model has no place for).
    """
    architecture = str(file.metadata["general.architecture"])
    (arch,) = (arch for arch, name in MODEL_ARCH_NAMES.items() if name == architecture)
    name_map = get_tensor_name_map(arch, config.num_hidden_layers)
    stored = {name: _stored_name(name_map, name) for name in parameters}
    missing = [name for name in parameters if stored[name] not in file.tensors]
    if missing:
        raise WordlineError(
            "missing-weights",
            f"the GGUF file lacks {len(missing)} of the model's {len(parameters)} tensors, the first is '{missing[0]}'",
            where=str(file.path),
            remedy="convert the model again",
        )
    unplaced = sorted(set(file.tensors) - set(stored.values()))
    if unplaced:
        raise WordlineError(
            "unsupported-gguf",
            f"the model '{config.model_type}' has no place for {len(unplaced)} tensors of the GGUF file, "
            f"the first is '{unplaced[0]}'",
            where=str(file.path),
            remedy="load the model from its directory with safetensors and config.json",
        )
    weights: dict[str, NDArray[np.generic]] = {}
    for name, shape in parameters.items():
        if file.tensors[stored[name]] != shape:
            raise WordlineError(
                "wrong-shape",
                f"tensor '{stored[name]}' has shape {list(file.tensors[stored[name]])}, the model needs {list(shape)}",
                where=str(file.path),
            )
        data = file.tensor(stored[name])
        if architecture == "llama" and ".attn_q." in stored[name]:
            data = _rotary_halves(data, config.num_attention_heads)
        elif architecture == "llama" and ".attn_k." in stored[name]:
            data = _rotary_halves(data, config.num_key_value_heads)
        weights[name] = data
    return weights


def _stored_name(name_map: Any, name: str) -> str:
    base, _, suffix = name.rpartition(".")
    return f"{name_map.get_name(base)}.{suffix}"


def _rotary_halves(data: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo the row order of llama.cpp's Llama files, which interleave the two rotary halves of each head."""
    pairs = data.reshape(heads, data.shape[0] // heads // 2, 2, *data.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(data.shape)
