"""``wordline inspect --memory``: owners of rows, scratch over time, the envelope, and the picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.support.models import SHAPE, write_config
from wordline.artifact import open_artifact, write_artifact
from wordline.cli import main
from wordline.compiler.footprint import kv_footprint
from wordline.compiler.layout import place_kv
from wordline.compiler.pipeline import compile_model
from wordline.machines import load_machine

CONTEXT = 3000


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model without weights, for contexts of two pages."""
    folder = tmp_path_factory.mktemp("tiny")
    config = write_config(folder / "config.json", model_type="llama", **{**SHAPE, "max_position_embeddings": CONTEXT})
    return write_artifact(folder / "tiny.wl", compile_model(config, load_machine("gddr6-aim-chip")))


def test_the_envelope_is_exported(artifact: Path) -> None:
    opened = open_artifact(artifact)
    memory = opened.manifest.memory
    points = memory.envelope
    assert [p.context for p in points] == [1024, 2048, 3000]
    assert {p.batch for p in points} == {1}
    assert {p.weight_bytes for p in points} == {memory.weight_rows * opened.machine.organisation.device_row_bytes}
    # 2 layers of 2 heads; two heads start on two channels, so both channels hold the same
    page = memory.kv.rows_per_page * opened.machine.organisation.device_row_bytes // 2
    assert [p.kv_bytes for p in points] == [4 * page * pages for pages in (1, 2, 3)]
    assert [p.kv_rows for p in points] == [2 * memory.kv.rows_per_page * pages for pages in (1, 2, 3)]
    assert all(0 < p.scratch_bytes <= opened.machine.scratch.bytes_per_channel for p in points)


def test_pages_are_counted_on_the_channel_that_has_most() -> None:
    machine = load_machine("gddr6-aim-card")
    kv = place_kv(machine, 3, 5, 64, 65536)
    for context in (1, 256, 257, 5000, 65536):
        pages = -(-context // kv.page_tokens)
        counts = [0] * kv.channels
        for head in range(5):
            for page in range(pages):
                counts[(page + head) % kv.channels] += 1
        found = kv_footprint(machine, kv, context)
        assert found.pages == 3 * sum(counts)
        assert found.rows == 3 * max(counts) * kv.rows_per_page


def test_every_row_has_an_owner(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(artifact), "--memory", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    at = 0
    for owner in found["owners"]:
        assert owner["first_row"] == at
        at += owner["rows"]
    assert at == open_artifact(artifact).manifest.memory.weight_rows
    assert found["owners"][-1]["name"] == "vector parameters"
    assert sum(region["rows"] for region in found["dram"]) == 16384
    assert len(found["envelope"]) == 3


def test_tables_for_people(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(artifact), "--memory"]) == 0
    out = capsys.readouterr().out
    assert "model.layers.*.mlp.gate_proj.weight + model.layers.*.mlp.up_proj.weight" in out
    assert "DRAM rows 0 to 16383" in out
    assert "the fullest moments" in out
    assert "memory by context" in out


def test_the_picture_shows_every_owner_and_buffer(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "memory.svg"
    assert main(["inspect", str(artifact), "--svg", str(target)]) == 0
    assert str(target) in capsys.readouterr().out
    root = ElementTree.parse(target).getroot()
    titles = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]
    memory = open_artifact(artifact).manifest.memory
    for buffer in memory.scratch:
        assert any(title.startswith(f"{buffer.name}: ") for title in titles)
    for weight in memory.weights:
        if weight.dtype == "bf16":
            assert any(weight.name in title for title in titles)
    assert any(title.startswith("vector parameters: rows ") for title in titles)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        if box.attrib["width"] != "100%":
            assert float(box.attrib["x"]) + float(box.attrib["width"]) <= width
            assert 0 <= float(box.attrib["y"]) <= height - float(box.attrib["height"])
    assert main(["inspect", str(artifact), "--svg", str(tmp_path)]) == 2
    assert "error[bad-output]" in capsys.readouterr().err
