"""SmolLM2 generates text on the simulated device, from the cached artifact, without what compiling needs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import COMPILE_ONLY, Result, run_apart, run_here
from wordline.artifact import Artifact

PROMPT = "The capital of France is"


@pytest.fixture(autouse=True)
def _cache(wordline_cache: Path, smollm2_artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDLINE_CACHE", str(wordline_cache))


@pytest.fixture(scope="module")
def greedy(wordline_cache: Path, smollm2_artifact: Artifact) -> Result:
    """One greedy run of the default model, torch and the compiler unimportable."""
    environment = {**os.environ, "WORDLINE_CACHE": str(wordline_cache)}
    return run_apart(["generate", "--prompt", PROMPT, "--max-tokens", "6"], environment, without=COMPILE_ONLY)


def document(result: Result) -> dict[str, Any]:
    assert result.code == 0, result.err
    value = json.loads(result.out)
    assert isinstance(value, dict)
    return value


def test_text_is_generated_without_torch_and_without_the_compiler(greedy: Result) -> None:
    assert greedy.code == 0, greedy.err
    assert greedy.out.startswith(" Paris")
    assert greedy.out.endswith("\n")


def test_starting_from_the_cache_costs_little(greedy: Result) -> None:
    """A guard against imports and copies that do not belong there; processor time, because tests run side by side."""
    assert greedy.cpu_seconds < 6


def test_the_report_goes_to_standard_error(greedy: Result) -> None:
    for words in (
        "on sim:gddr6-aim-chip (machine ",
        "5 prompt tokens, 6 generated, ended by length",
        "device time, simulated: ",
        "% of L0",
        "% of L2",
        "multiply-accumulate",
        "row turns",
        "by kind of operation",
        "gemv",
        "attention",
        "energy, modelled: ",
        "standby, rows open",
        "host time, measured: ",
    ):
        assert words in greedy.err
        assert words not in greedy.out


def test_json_has_text_tokens_and_report(capsys: pytest.CaptureFixture[str], greedy: Result) -> None:
    made = document(run_here(capsys, "generate", "--prompt", PROMPT, "--max-tokens", "6", "--json"))
    assert made["text"] + "\n" == greedy.out
    assert (len(made["prompt_tokens"]), len(made["tokens"]), made["stop"]) == (5, 6, "length")
    time = made["report"]["device_time"]
    assert time["context"] == 10
    assert time["l0_ns"] < time["l2_ns"] < time["last_step_ns"]
    assert time["percent_of_l2"] == pytest.approx(100 * time["l2_ns"] / time["last_step_ns"])
    assert sum(time["causes_ns"].values()) == pytest.approx(time["last_step_ns"])
    assert sum(kind["channel_ns"] for kind in time["kinds"]) == pytest.approx(time["last_step_ns"])
    for kind in time["kinds"]:
        assert sum(kind["causes_ns"].values()) == pytest.approx(kind["channel_ns"], abs=1e-3)
        assert kind["channel_ns"] >= -1e-6
    assert {"gemv", "attention", "vector"} <= {kind["kind"] for kind in time["kinds"]}
    energy = time["energy"]
    assert time["joules_per_token"] == energy["joules"] == pytest.approx(sum(energy["kinds_j"].values()))
    assert sum(energy["components_j"].values()) == pytest.approx(energy["joules"])
    assert energy["watts"] == pytest.approx(energy["joules"] / (time["last_step_ns"] * 1e-9))
    assert {"ACT16", "MAC16", "WRGB", "RDMAC16", "standby, rows open", "vector unit"} <= set(energy["kinds_j"])
    assert 0.5e-3 < energy["joules"] < 5e-3  # 135 M weights: 0.53 M MAC16 of 1.3 nJ and 8,200 ACT16 of 47 nJ
    assert made["report"]["host_time"]["tokens_per_s"] > 0


def test_timing_alone_has_the_same_cycles_and_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    """One token: the next step's token is known to the one device only, and where its embedding lies takes cycles."""
    both, only = (
        document(run_here(capsys, "generate", "--prompt", PROMPT, "--max-tokens", "1", "--json", "--device", device))
        for device in ("sim", "null:gddr6-aim-chip")
    )
    assert only["text"] is None
    assert only["report"]["device"] == "null:gddr6-aim-chip"
    assert only["report"]["values_computed"] is False
    assert only["report"]["device_time"] == both["report"]["device_time"]


def test_without_timing_there_is_the_same_text(capsys: pytest.CaptureFixture[str], greedy: Result) -> None:
    result = run_here(capsys, "generate", "--prompt", PROMPT, "--max-tokens", "6", "--no-timing")
    assert result.code == 0
    assert result.out == greedy.out
    assert "device time" not in result.err


def test_sampling_repeats_with_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    def text(seed: int) -> str:
        options = ("--temperature", "1", "--top-k", "50", "--top-p", "0.95", "--seed", str(seed), "--no-timing")
        result = run_here(capsys, "generate", "--prompt", PROMPT, "--max-tokens", "5", *options)
        assert result.code == 0, result.err
        return result.out

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(3)}) > 1


def test_chat_answers(capsys: pytest.CaptureFixture[str]) -> None:
    made = document(
        run_here(capsys, "generate", "--chat", "--prompt", "Say: yes", "--max-tokens", "2", "--json", "--no-timing")
    )
    assert made["text"]
    assert len(made["prompt_tokens"]) > 10  # the template adds roles


def test_the_prompt_can_come_from_standard_input() -> None:
    arguments = ["generate", "--max-tokens", "1", "--no-timing"]
    result = run_apart(arguments, os.environ, without=COMPILE_ONLY, text=PROMPT)
    assert (result.code, result.out) == (0, " Paris\n")


def test_an_artifact_runs_by_its_path_on_its_own_machine(
    capsys: pytest.CaptureFixture[str], smollm2_artifact: Artifact
) -> None:
    arguments = ("--prompt", PROMPT, "--max-tokens", "1", "--no-timing")
    result = run_here(capsys, "generate", smollm2_artifact.path, *arguments)
    assert (result.code, result.out) == (0, " Paris\n")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--prompt", "word " * 40, "--context", "8"), "prompt-too-long", "tokens, the context is 8"),
        (("--prompt", "a", "--context", "9000"), "bad-context", "compiled for 1 to 8192"),
        (("--prompt-length", "5"), "cannot-skip", "null:gddr6-aim-chip"),
        (("--prompt-length", "8193", "--device", "null"), "prompt-too-long", "the context is 8192: 1 too many"),
        (("--prompt-length", "9" * 30, "--device", "null"), "prompt-too-long", "the context is 8192"),
        (("--prompt-length", "5", "--prompt", "a"), "conflicting-options", "a --prompt or --chat too"),
        (("--prompt-length", "5", "--chat"), "conflicting-options", "a --prompt or --chat too"),
        (("--prompt", "caf\udce9"), "bad-prompt", "not UTF-8 text\n  where: --prompt"),
        (("--prompt", "\ud83d"), "bad-prompt", "not UTF-8 text"),
        (("--prompt", ""), "empty-prompt", "no tokens"),
        (("--prompt", "a", "--temperature", "-1"), "bad-sampling", "temperature is -1"),
        (("--prompt", "a", "--top-p", "0"), "bad-sampling", "top-p is 0"),
        (("--prompt", "a", "--machine", "gddr6-aim-card"), "machine-mismatch", "not for 'gddr6-aim-card'"),
        (("--prompt", "a", "--set", "bank_unit.accumulators=2"), "machine-mismatch", "compiled for"),
        (("--prompt", "a", "--device", "sim:gddr6-aim-card"), "machine-mismatch", "compiled for"),
        (("--prompt", "a", "--machine", "gddr6-aim-chp"), "unknown-machine", "gddr6-aim-chip"),
        (("--prompt", "a", "--device", "nul:gddr6-aim-chip"), "unknown-driver", "null:MACHINE"),
        (
            ("--prompt", "a", "--device", "sim:gddr6-aim-chip", "--machine", "gddr6-aim-chip"),
            "conflicting-options",
            "names a machine",
        ),
    ],
)
def test_bad_input_is_one_clear_error(
    capsys: pytest.CaptureFixture[str], smollm2_artifact: Artifact, options: tuple[str, ...], code: str, words: str
) -> None:
    result = run_here(capsys, "generate", smollm2_artifact.path, *options)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(f"error[{code}]: ")
    assert words in result.err
    assert "\n  do: " in result.err
    assert "Traceback" not in result.err
