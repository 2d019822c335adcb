"""``compile score inspect disasm devices``, and what they say about bad input."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.artifacts import tiny_contents
from tests.support.commands import COMPILE_ONLY, run_apart, run_here
from wordline.artifact import Artifact, write_artifact
from wordline.cli import cache
from wordline.engine import Session, Want
from wordline.machines import load_machine
from wordline.runtime import Residency, open_device

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_artifact(tmp_path / "tiny.wl", tiny_contents())


def config(folder: Path, **changes: Any) -> Path:
    """The config.json of a Llama with one small layer."""
    values = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "vocab_size": 1000,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **changes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))
    return folder / "config.json"


# compile


def test_a_config_alone_compiles_and_can_be_timed_but_not_run(capsys: Capture, tmp_path: Path) -> None:
    target = tmp_path / "small.wl"
    result = run_here(capsys, "compile", config(tmp_path / "model"), "-o", target, "--context", "300")
    assert result.code == 0, result.err
    assert "weights unbound" in result.out
    assert "generating code" in result.err
    tokens = tmp_path / "tokens.json"
    tokens.write_text("[1, 2, 3]")
    timed = run_here(capsys, "generate", target, "--device", "null", "--prompt-length", "200", "--max-tokens", "3")
    assert (timed.code, timed.out) == (0, "")
    assert "200 prompt tokens, 3 generated" in timed.err
    assert "at context 202: " in timed.err
    refused = run_here(capsys, "generate", target, "--prompt-length", "5")
    assert refused.err.startswith("error[weights-unbound]")
    refused = run_here(capsys, "score", target, "--tokens", tokens)
    assert refused.code == 2
    assert refused.err.startswith("error[weights-unbound]")
    assert "null:gddr6-aim-chip" in refused.err


def test_a_model_that_does_not_fit_says_by_how_much_and_what_holds_it(capsys: Capture, tmp_path: Path) -> None:
    big = config(
        tmp_path / "model", hidden_size=2048, intermediate_size=5632, num_attention_heads=32, num_hidden_layers=14
    )
    result = run_here(capsys, "compile", big, "-o", tmp_path / "big.wl")
    assert result.code == 2
    assert "error[device-full]" in result.err
    assert "GB too much" in result.err
    assert "use --machine gddr6-aim-card" in result.err
    assert not (tmp_path / "big.wl").exists()


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (None, "model-not-found", "there is no model"),
        (b"", "not-gguf", "GGUF"),
        (b"hello", "not-gguf", "GGUF"),
        (b"GGUF\x03\x00\x00\x00", "damaged-gguf", "damaged"),
    ],
)
def test_missing_and_damaged_models(
    capsys: Capture, tmp_path: Path, content: bytes | None, code: str, words: str
) -> None:
    model = tmp_path / "model.gguf"
    if content is not None:
        model.write_bytes(content)
    for command in (("compile", model, "-o", tmp_path / "a.wl"), ("generate", model, "--prompt", "a")):
        result = run_here(capsys, *command)
        assert result.code == 2
        assert f"error[{code}]: " in result.err
        assert words in result.err
        assert "\n  do: " in result.err
    assert not (tmp_path / "a.wl").exists()


def test_a_truncated_model_leaves_nothing_behind(capsys: Capture, tmp_path: Path, smollm2_path: Path) -> None:
    model = tmp_path / "model.gguf"
    with smollm2_path.open("rb") as source:
        model.write_bytes(source.read(90_000_000))
    result = run_here(capsys, "compile", model, "-o", tmp_path / "a.wl")
    assert result.code == 2
    assert "error[damaged-gguf]: " in result.err
    assert "the file has 90000000 bytes" in result.err
    assert [p.name for p in tmp_path.iterdir()] == ["model.gguf"]


def test_an_unknown_architecture(capsys: Capture, tmp_path: Path) -> None:
    model = config(tmp_path / "m", architectures=["NoSuchForCausalLM"], model_type="nosuch")
    result = run_here(capsys, "compile", model, "-o", tmp_path / "a.wl")
    assert result.code == 2
    assert "nosuch" in result.err.lower()
    assert not (tmp_path / "a.wl").exists()


@pytest.mark.parametrize("name", ["model", "model.gguf", "folder.wl"])
def test_the_target_is_checked_before_anything_is_compiled(capsys: Capture, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.wl").mkdir()
    (tmp_path / "folder.wl" / "mine").touch()
    result = run_here(capsys, "compile", config(tmp_path / "m"), "-o", tmp_path / name)
    assert result.code == 2
    assert "loading the compiler" not in result.err
    assert (tmp_path / "folder.wl" / "mine").exists()


def test_a_full_disk_while_compiling_leaves_nothing(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.open

    def full(self: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        return real(Path("/dev/full") if self.name == "program.bin" else self, mode, *args, **more)

    model = config(tmp_path / "m")
    monkeypatch.setattr(Path, "open", full)
    result = run_here(capsys, "compile", model, "-o", tmp_path / "a.wl", "--context", "300")
    assert result.code == 2
    assert "error[write-failed]: the artifact cannot be written: No space left on device" in result.err
    assert "do: free space" in result.err
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_an_artifact_is_no_model(capsys: Capture, tiny: Path) -> None:
    result = run_here(capsys, "compile", tiny)
    assert result.err.startswith("error[already-compiled]")


# The cache


def test_the_cache_key_follows_content_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDLINE_CACHE", str(tmp_path / "cache"))
    chip, card = load_machine("gddr6-aim-chip"), load_machine("gddr6-aim-card")
    a, b = tmp_path / "a.gguf", tmp_path / "b.gguf"
    a.write_bytes(b"one")
    b.write_bytes(b"one")
    key = cache.cache_key(a, chip, None)
    assert key == cache.cache_key(b, chip, None)
    assert len({key, cache.cache_key(a, card, None), cache.cache_key(a, chip, 5)}) == 3
    b.write_bytes(b"two")
    assert key != cache.cache_key(b, chip, None)
    hashes = json.loads((tmp_path / "cache" / cache.HASHES).read_text())
    assert len(hashes) == 3
    (tmp_path / "cache" / cache.HASHES).write_text("{broken")
    assert key == cache.cache_key(a, chip, None)


def test_a_model_folder_is_hashed_by_all_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDLINE_CACHE", str(tmp_path / "cache"))
    config(tmp_path / "m")
    before = cache.model_hash(tmp_path / "m")
    assert before == cache.model_hash(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"weights")
    assert before != cache.model_hash(tmp_path / "m")


def test_a_damaged_cached_artifact_is_compiled_again(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORDLINE_CACHE", str(tmp_path / "cache"))
    model = config(tmp_path / "m")
    tokens = tmp_path / "t.json"
    tokens.write_text("[1]")
    phases: list[str] = []
    chip = load_machine("gddr6-aim-chip")
    first = cache.cached_artifact(model, chip, 300, phases.append)
    assert "writing the artifact" in phases
    phases.clear()
    assert cache.cached_artifact(model, chip, 300, phases.append).digest == first.digest
    assert phases == []
    (first.path / "program.bin").write_bytes(b"")
    stale = first.path.with_name(first.path.name.replace(cache.compiler_hash()[:8], "00000000"))
    shutil.copytree(first.path, stale)
    assert cache.cached_artifact(model, chip, 300, phases.append).digest == first.digest
    assert "cannot be used" in phases[0]
    assert "program.bin has 0 bytes" in phases[0]
    assert not stale.exists()


# score


def test_scores_are_those_of_the_device(
    capsys: Capture, tmp_path: Path, smollm2_artifact: Artifact, monkeypatch: pytest.MonkeyPatch, wordline_cache: Path
) -> None:
    monkeypatch.setenv("WORDLINE_CACHE", str(wordline_cache))
    ids = [504, 3575, 282, 4649, 314, 7042]
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps(ids))
    result = run_apart(["score", "--tokens", tokens, "--top-k", "5", "--json"], os.environ, without=COMPILE_ONLY)
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert list(document) == ["positions"]
    assert [list(entry) for entry in document["positions"]] == [
        ["logsumexp", "top_ids", "top_logits", "next_logit"]
    ] * 6
    model = Residency(open_device("sim:gddr6-aim-chip")).acquire(smollm2_artifact)
    with Session(model) as session:
        for index, (token, entry) in enumerate(zip(ids, document["positions"], strict=True)):
            logits = session.step(token, Want.LOGITS).logits
            assert logits is not None
            wide = logits.astype(np.float64)
            assert entry["logsumexp"] == pytest.approx(float(np.log(np.exp(wide).sum())), rel=1e-9)
            assert len(entry["top_ids"]) == 5
            assert entry["top_logits"] == [float(logits[i]) for i in entry["top_ids"]]
            assert entry["top_logits"][0] == float(logits.max())
            assert entry["top_logits"] == sorted(entry["top_logits"], reverse=True)
            following = float(logits[ids[index + 1]]) if index + 1 < len(ids) else None
            assert entry["next_logit"] == following


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (None, "tokens-not-found", "cannot be read"),
        ("{", "bad-tokens", "not JSON"),
        ("3", "bad-tokens", "no list"),
        ("[1, true]", "bad-tokens", "entry 1 is True"),
        ('[1, "a"]', "bad-tokens", "entry 1 is 'a'"),
        ("[1.5]", "bad-tokens", "entry 0 is 1.5"),
        ("[19, 20]", "bad-tokens", "entry 1, token 20, is outside the vocabulary of 20"),
        ("[]", "empty-prompt", "no tokens"),
        (json.dumps([0] * 1001), "prompt-too-long", "1 too many"),
    ],
)
def test_bad_tokens(capsys: Capture, tiny: Path, text: str | None, code: str, words: str) -> None:
    tokens = tiny.parent / "tokens.json"
    if text is not None:
        tokens.write_text(text)
    result = run_here(capsys, "score", tiny, "--tokens", tokens, "--json")
    assert result.code == 2
    assert result.err.startswith(f"error[{code}]: ")
    assert words in result.err
    assert json.loads(result.out)["error"]["code"] == code


# inspect, disasm, devices


def test_inspect_shows_sizes_and_memory(capsys: Capture, tiny: Path) -> None:
    result = run_here(capsys, "inspect", tiny)
    assert result.code == 0
    for words in ("tiny (LlamaForCausalLM)", "gddr6-aim-chip", "weights.bin", "131,072", "KV pages", "entry decode"):
        assert words in result.out
    document = json.loads(run_here(capsys, "inspect", tiny, "--json").out)
    assert document["dram"][0] == {"region": "weights", "first_row": 0, "rows": 2, "bytes": 131072}
    assert sum(region["rows"] for region in document["dram"]) == 16384
    assert document["manifest"]["model"]["name"] == "tiny"


def test_disasm_names_the_source_of_each_range(capsys: Capture, tiny: Path) -> None:
    result = run_here(capsys, "disasm", tiny)
    assert result.code == 0
    lines = [line.strip() for line in result.out.splitlines()]
    assert lines[0] == "stream channel mask=0x3"
    assert lines[1] == "; logits [linear] model.py:1"
    assert "0: RD bank=0 row=0 column=0 count=2 target=0" in lines


def test_disasm_of_one_operation(capsys: Capture, tiny: Path) -> None:
    result = run_here(capsys, "disasm", tiny, "--op", "argmax")
    assert result.code == 0
    assert "STA index=" in result.out
    assert "RD bank" not in result.out
    missing = run_here(capsys, "disasm", tiny, "--op", "softmax")
    assert missing.code == 2
    assert "kinds in it: linear, link, vector" in missing.err
    entry = run_here(capsys, "disasm", tiny, "--entry", "prefill")
    assert "its entries are: decode" in entry.err


def test_the_real_program_is_readable(capsys: Capture, smollm2_artifact: Artifact) -> None:
    result = run_here(capsys, "disasm", smollm2_artifact.path, "--op", "embedding")
    assert result.code == 0
    assert "; embedding model.embed_tokens [embedding] model.embed_tokens, sparse.py:" in result.out
    assert run_here(capsys, "inspect", smollm2_artifact.path).code == 0


@pytest.mark.parametrize("command", [("inspect",), ("disasm",), ("generate", "--prompt", "a"), ("score",)])
def test_corrupt_artifacts_are_refused_everywhere(capsys: Capture, tiny: Path, command: tuple[str, ...]) -> None:
    data = bytearray((tiny / "weights.bin").read_bytes())
    data[1000] ^= 4
    (tiny / "weights.bin").write_bytes(data)
    (tiny.parent / "t.json").write_text("[1]")
    extra = ("--tokens", tiny.parent / "t.json") if command[0] == "score" else ()
    result = run_here(capsys, command[0], tiny, *command[1:], *extra)
    assert result.code == 2
    assert result.err.startswith(
        "error[corrupt-artifact]: the artifact is damaged: weights.bin does not match its hash"
    )
    assert "do: compile it again" in result.err


@pytest.mark.parametrize("device", ["sim:gddr6-aim-chip", "null:gddr6-aim-card"])
def test_devices_are_listed_and_checked(capsys: Capture, device: str) -> None:
    listed = json.loads(run_here(capsys, "devices", "--json").out)
    assert device in [entry["device"] for entry in listed]
    result = run_here(capsys, "devices", device)
    assert result.code == 0
    assert "controller memory: written and read back" in result.out
    assert "timing.nRP" in result.out


def test_a_wrong_device_is_one_error(capsys: Capture) -> None:
    result = run_here(capsys, "devices", "sim:gddr6-aim-chip?set=timing.nRP=x")
    assert result.code == 2
    assert result.err.startswith("error[machine-override]: timing.nRP")
