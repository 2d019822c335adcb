"""The limits equal the reference tables to their last printed digit, and move the right way with the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.reference import reference_rows
from wordline.errors import WordlineError
from wordline.machines import Machine, load_machine
from wordline.sim.limits import decode_limits, gemv_limits
from wordline.sim.shapes import ModelShape, known_shapes, model_shape


@pytest.fixture(scope="module")
def chip() -> Machine:
    return load_machine("gddr6-aim-chip")


def test_gemv_equals_the_table(chip: Machine) -> None:
    rows = reference_rows("limits/gemv.csv")
    assert len(rows) == 48
    for row in rows:
        limits = gemv_limits(chip, int(row["M"]), int(row["K"]), int(row["channels"]))
        assert f"{limits.l0:.1f}" == row["L0_ns"], row
        assert f"{limits.l1:.1f}" == row["L1_ns"], row
        assert f"{limits.l2:.1f}" == row["L2_ns"], row
        assert f"{limits.l3:.1f}" == row["L3_ns"], row
        assert f"{100 * limits.l0 / limits.l3:.1f}" == row["L3_percent_of_L0"], row


def test_decode_equals_the_table(chip: Machine) -> None:
    rows = reference_rows("limits/decode.csv")
    assert len(rows) == 160
    for row in rows:
        shape = known_shapes()[row["model"]]
        limits = decode_limits(chip, shape, int(row["batch"]), int(row["context"]), int(row["channels"]))
        assert f"{limits.weight_bytes / 1e9:.3f}" == row["weights_GB"], row
        assert f"{limits.kv_bytes / 1e9:.3f}" == row["kv_GB"], row
        for column, value in (
            ("L0_ms", limits.l0),
            ("L1_ms", limits.l1),
            ("L2_ms", limits.l2),
            ("L2B_ms", limits.l2b),
            ("attention_L2_ms", limits.attention.l2),
        ):
            assert f"{value / 1e6:.4f}" == row[column], (column, row)


def test_channels_default_to_the_machines() -> None:
    card = load_machine("gddr6-aim-card")
    assert gemv_limits(card, 4096, 4096) == gemv_limits(card, 4096, 4096, 32)
    shape = model_shape("Llama-2-7B")
    assert decode_limits(card, shape, 1, 128) == decode_limits(card, shape, 1, 128, 32)


@given(m=st.integers(1, 60_000), k=st.integers(1, 30_000), channels=st.integers(1, 64), more=st.integers(1, 1000))
def test_each_limit_includes_the_one_before(m: int, k: int, channels: int, more: int) -> None:
    machine = load_machine("gddr6-aim-chip")
    limits = gemv_limits(machine, m, k, channels)
    assert 0 < limits.l0 < limits.l1 < limits.l2
    assert limits.l3 > limits.l0
    assert gemv_limits(machine, m + more, k, channels).l0 > limits.l0
    assert gemv_limits(machine, m + more, k, channels).l3 >= limits.l3


@given(batch=st.integers(1, 64), context=st.integers(1, 8192))
def test_sharing_rows_is_worth_at_most_the_batch(batch: int, context: int) -> None:
    machine, shape = load_machine("gddr6-aim-chip"), model_shape("SmolLM2-135M")
    one, many = decode_limits(machine, shape, 1, context), decode_limits(machine, shape, batch, context)
    assert many.l2 <= many.l2b * (1 + 1e-12)
    assert many.l2b <= one.l2 * batch * (1 + 1e-12)
    assert one.l2b == pytest.approx(one.l2, rel=1e-12)


def test_a_faster_machine_has_lower_limits(chip: Machine) -> None:
    for change in ({"timing.nRP": 16}, {"refresh.enabled": False}, {"clock.tck_ns": 0.4}):
        assert gemv_limits(load_machine("gddr6-aim-chip", change), 4096, 4096).l2 < gemv_limits(chip, 4096, 4096).l2


def test_without_refresh_l2_is_l1() -> None:
    limits = gemv_limits(load_machine("gddr6-aim-chip", {"refresh.enabled": False}), 576, 576)
    assert limits.l2 == limits.l1


def test_a_machine_outside_the_formulas_is_refused() -> None:
    with pytest.raises(WordlineError, match="one row buffer, not 2") as caught:
        gemv_limits(load_machine("gddr6-aim-chip", {"rules.row_buffers": 2}), 16, 16)
    assert caught.value.code == "limits-undefined"
    assert "rules.row_buffers" in str(caught.value)


@pytest.mark.parametrize(
    ("m", "k", "channels", "name"), [(0, 16, None, "m"), (16, -1, None, "k"), (1, 1, 0, "channels")]
)
def test_sizes_below_one_are_refused(chip: Machine, m: int, k: int, channels: int | None, name: str) -> None:
    with pytest.raises(WordlineError, match=f"^{name} is") as caught:
        gemv_limits(chip, m, k, channels)
    assert caught.value.code == "bad-shape"


def test_shape_from_a_config(tmp_path: Path) -> None:
    folder = tmp_path / "SmolLM2-135M"
    folder.mkdir()
    config = {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
    }
    (folder / "config.json").write_text(json.dumps(config))
    assert model_shape(str(folder / "config.json")) == known_shapes()["SmolLM2-135M"]
    assert model_shape("smollm2-135m") == known_shapes()["SmolLM2-135M"]
    (folder / "config.json").write_text(json.dumps(config | {"head_dim": 128}))
    assert model_shape(str(folder / "config.json")).head_dim == 128


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("{", "bad-config", "not JSON"),
        ("[]", "bad-config", "not a JSON object"),
        ("{}", "bad-model-shape", "hidden_size is missing"),
        (
            '{"hidden_size": 8, "num_attention_heads": 3, "num_key_value_heads": 2, "num_hidden_layers": 1, '
            '"intermediate_size": 8, "vocab_size": 8}',
            "bad-model-shape",
            "3 heads cannot share 2 KV heads",
        ),
        (
            '{"hidden_size": 8, "num_attention_heads": 0, "num_hidden_layers": 1, "intermediate_size": 8, '
            '"vocab_size": 8}',
            "bad-model-shape",
            "heads is 0",
        ),
    ],
)
def test_a_bad_config_says_what_is_wrong(tmp_path: Path, text: str, code: str, part: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(WordlineError, match=part) as caught:
        model_shape(str(file))
    assert caught.value.code == code


def test_an_unknown_model_offers_the_nearest() -> None:
    with pytest.raises(WordlineError, match="Llama-2-70B") as caught:
        model_shape("llama2-70b")
    assert caught.value.code == "unknown-model-shape"
    with pytest.raises(WordlineError) as missing:
        model_shape("nowhere/config.json")
    assert missing.value.code == "config-not-found"


def test_a_shape_counts_its_weights() -> None:
    shape = ModelShape("tiny", layers=2, hidden=8, ffn=16, heads=4, kv_heads=2, head_dim=2, vocab=10)
    assert shape.matrix_elements == 2 * (8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 16) + 80
    assert shape.kv_elements(5) == 2 * 2 * 5 * 4


def test_blocks_that_serve_two_banks_hide_row_turns() -> None:
    machine = load_machine("hbm2-pim-4stacks")
    limits = gemv_limits(machine, 4096, 4096)
    # 64 pseudo-channels x 8 blocks x 16 lanes, one column each 4 ns.
    assert limits.l0 == limits.l1 == 4096 * 4096 / (64 * 8 * 16) * 4
    assert limits.l2 == pytest.approx(limits.l0 * 3900 / 3550)
