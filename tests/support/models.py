"""Tiny random models, saved and loaded offline, and transformers as the reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.quants import quantize
from numpy.typing import NDArray
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from wordline.graph.interpreter import Interpreter
from wordline.graph.ir import Graph

VOCABULARY = 300
"""Room for the 256 bytes of a byte-level vocabulary and some words."""

SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 256,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": None,
}

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def tiny_model(model_type: str, **fields: Any) -> PreTrainedModel:
    """A random model in fp32 whose logits depend strongly on every position."""
    config = AutoConfig.for_model(model_type, **{**SHAPE, **fields})
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return model


def saved_model(directory: Path, model_type: str, **fields: Any) -> PreTrainedModel:
    """The same, also written as config.json and safetensors."""
    model = tiny_model(model_type, **fields)
    model.save_pretrained(directory)
    return model


def worst_difference(graph: Graph, model: PreTrainedModel, tokens: NDArray[np.int64]) -> float:
    """Largest difference between the interpreter's and the model's logits, teacher-forced over [batch, length]."""
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)).logits.numpy()
    interpreter = Interpreter(graph)
    worst = 0.0
    for position in range(tokens.shape[1]):
        outputs = interpreter.step(tokens[:, position], np.full(len(tokens), position))
        np.testing.assert_array_equal(outputs["next_token"], outputs["logits"].argmax(axis=-1))
        worst = max(worst, float(np.abs(outputs["logits"] - expected[:, position]).max()))
    return worst


def write_config(path: Path, **fields: Any) -> Path:
    path.write_text(json.dumps(fields))
    return path


def byte_vocabulary() -> list[str]:
    """The 256 byte letters of byte-level tokenizers, two control tokens, two merged ones, and filler."""
    direct = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in direct]
    letters = {byte: chr(byte) for byte in direct} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return (
        [letters[byte] for byte in range(256)]
        + ["<s>", "</s>", "he", "ll"]
        + [f"<filler{n}>" for n in range(VOCABULARY - 260)]
    )


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    architecture: str,
    format: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    **changes: Any,
) -> dict[str, NDArray[np.float32]]:
    """Write a model as a GGUF file, with a byte-level tokenizer.

    Returns:
        The weights by transformers' name, as the file holds them after dequantisation.
    """
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    if "rope_scaling" in changes:
        writer.add_rope_scaling_type(changes["rope_scaling"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    vocabulary = byte_vocabulary()
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if token in ("<s>", "</s>") else 1 for token in vocabulary])
    writer.add_token_merges(["h e", "l l"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_chat_template("{% for m in messages %}{{ bos_token + m['content'] + eos_token }}{% endfor %}")
    (arch,) = (key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    weights: dict[str, NDArray[np.float32]] = {}
    for name, parameter in model.named_parameters():
        base, _, suffix = name.rpartition(".")
        stored = f"{names.get_name(base)}.{suffix}"
        if stored == changes.get("omit"):
            continue
        data = parameter.detach().numpy()
        kind = format if data.ndim == 2 else gguf.GGMLQuantizationType.F32
        packed = quantize(data, kind)
        weights[name] = gguf.quants.dequantize(packed, kind)
        if architecture == "llama" and (".attn_q." in stored or ".attn_k." in stored):
            heads = config.num_attention_heads if ".attn_q." in stored else config.num_key_value_heads
            # llama.cpp interleaves the rotary halves of each head; rows keep their blocks.
            packed = packed.reshape(heads, 2, -1, packed.shape[1]).swapaxes(1, 2).reshape(packed.shape)
        writer.add_tensor(stored, np.ascontiguousarray(packed), raw_dtype=kind)
    if "extra" in changes:
        writer.add_tensor(changes["extra"], np.zeros(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights
