"""The transformers model that accuracy and speed are compared with: the GGUF file's weights, dequantised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from wordline.frontend.gguf_file import GGUFFile
from wordline.frontend.gguf_model import config_of, weights_of


def reference_model(path: Path, dtype: torch.dtype) -> Any:
    """The model of a GGUF file, run by transformers in ``dtype`` with eager attention.

    Raises:
        WordlineError: as the frontend does for the file.
    """
    file = GGUFFile(path)
    config = config_of(file)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    weights = weights_of(file, config, shapes)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(weights.pop(name)))
    # RMSNorm and rotary embedding keep computing in fp32 inside, as they do in any bf16 run of transformers.
    return model.to(dtype).eval()
