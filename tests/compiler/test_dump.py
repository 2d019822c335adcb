"""Every level of a compilation as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.models import saved_model
from wordline.compiler.dump import dump_ir
from wordline.compiler.pipeline import compile_graph
from wordline.errors import WordlineError
from wordline.frontend.load import load_model
from wordline.graph.text import parse_graph
from wordline.machines import load_machine


def test_levels(tmp_path: Path) -> None:
    saved_model(tmp_path, "llama")
    model = load_model(tmp_path)
    compiled = compile_graph(model.graph, load_machine("gddr6-aim-chip"), 64)
    texts = {path.name: path.read_text() for path in dump_ir(compiled, tmp_path / "ir")}
    assert list(texts) == [
        "1-graph.mlir",
        "2-dispatch.txt",
        "3-layout.txt",
        "4-kernels.txt",
        "5-scratch.txt",
        "6-program.txt",
    ]
    assert len(parse_graph(texts["1-graph.mlir"]).ops) == len(model.graph.ops)
    assert "linear model.layers.0.self_attn.q_proj: banks" in texts["2-dispatch.txt"]
    assert "model.layers.1.mlp.down_proj.weight (64 x 96)" in texts["3-layout.txt"]
    assert "channel attention attention0 score 0" in texts["4-kernels.txt"]
    assert "zeros" in texts["5-scratch.txt"]
    assert "linear model.layers.0.self_attn.q_proj [gemv]" in texts["6-program.txt"]
    assert texts["6-program.txt"].count("MAC16") > 10

    with pytest.raises(WordlineError, match="cannot be written") as caught:
        dump_ir(compiled, tmp_path / "config.json" / "ir")
    assert caught.value.code == "write-failed"
