"""Machine files: what they say, how they are checked, how variants are made."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wordline.errors import WordlineError
from wordline.machines import hbm2_pim, list_machines, load_machine
from wordline.machines.generations import GENERATIONS
from wordline.machines.schema import Quantity

# Turnarounds as docs and data sheets state them, in cycles.
RULES = {
    "nWRMAC2RDMAC": 14,
    "nWRGB2RDMAC": 12,
    "nWR2RDMAC": 19,
    "nWRA2RD": 19,
    "nWR2RDS": 17,
    "nWR2RDL": 19,
    "nRD2WR": 50,
    "nRD2WRGB": 55,
    "nRD2WRMAC": 55,
    "nRDMAC2WR": 0,
    "nRDMAC2WRGB": 5,
    "nRDMAC2WRMAC": 5,
    "nWR2MAC": 19,
    "nRDCP2MAC": 52,
    "nWR2PRE": 41,
    "nEWMUL2PRE": 39,
    "nWRA2ACT": 73,
    "nRD_latency": 52,
    "nRDMAC_latency": 2,
    "nWR_latency": 8,
    "nWRMAC_latency": 3,
    "nWRGB_latency": 3,
    "nMAC2TMOD": 2,
    "nCMD2TMOD": 1,
}


def write(folder: Path, text: str, name: str = "mine.toml") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def failure(name: str, **overrides: str | int | float | bool) -> WordlineError:
    with pytest.raises(WordlineError) as caught:
        load_machine(name, {path.replace("__", "."): value for path, value in overrides.items()})
    return caught.value


def test_the_shipped_machines() -> None:
    assert list_machines() == ["gddr6-aim-card", "gddr6-aim-chip", "hbm2-pim-4stacks", "hbm2-pim-stack"]
    chip, card = load_machine("gddr6-aim-chip"), load_machine("gddr6-aim-card")
    assert (chip.organisation.channels, card.organisation.channels) == (2, 32)
    assert (chip.organisation.capacity_bytes, card.organisation.capacity_bytes) == (1 << 30, 1 << 34)
    assert chip.organisation.row_bytes == 2048
    assert chip.generation == card.generation == "gddr6-aim"
    assert chip.hash != card.hash
    differing = {path for path, value in chip.flat().items() if card.flat()[path] != value}
    assert differing == {"organisation.channels", "organisation.capacity_bytes"}


@pytest.mark.parametrize("name", ["gddr6-aim-chip", "gddr6-aim-card"])
def test_turnarounds_follow_the_published_rules(name: str) -> None:
    timing = load_machine(name).timing
    assert {key: getattr(timing, key) for key in RULES} == RULES
    assert timing.nRTP + timing.nRP + timing.nRCDRDMAC == 100  # the published bubble of a row turn


@pytest.mark.parametrize("name", list_machines())
def test_derived_values_equal_their_stated_formula(name: str) -> None:
    for section in load_machine(name).sections.values():
        values = {entry.name: getattr(section, entry.name) for entry in fields(section)}
        for derived, (_, formula) in getattr(section, "DERIVED", {}).items():
            assert getattr(section, derived) == eval(formula, {"max": max, **values}), derived


@pytest.mark.parametrize("name", list_machines())
def test_every_constant_has_unit_and_source(name: str) -> None:
    machine = load_machine(name)
    for path in machine.flat():
        found = machine.field(path)
        assert found.unit
        assert found.source


def test_sources_are_kept() -> None:
    machine = load_machine("gddr6-aim-chip")
    assert machine.field("timing.nRP").source.startswith("aim_simulator 0f28a07, GDDR6.cpp")
    assert machine.field("timing.nWR2PRE").source == "derived: nCWL + nBL + nWR"


def test_flat_and_attributes_agree() -> None:
    machine = load_machine("gddr6-aim-card")
    flat = machine.flat()
    assert flat["timing.nRP"] == machine.timing.nRP == 32
    assert flat["bank_unit.weight_formats"] == "bf16"
    assert flat["vector_unit.latency.exp"] == machine.vector_unit.latency["exp"] == 11
    assert flat["rules.faw_enforced"] is False
    assert machine.vector_unit.latency_of("exp") == 11
    assert machine.vector_unit.latency_of("add") == 1
    for path, value in flat.items():
        section, key = path.split(".")[:2]
        assert section in machine.sections
        assert isinstance(value, int | float | str | bool), key


@pytest.mark.parametrize("name", list_machines())
def test_loading_twice_and_pickling_give_the_same(name: str) -> None:
    machine = load_machine(name)
    again = pickle.loads(pickle.dumps(machine))
    assert (again, hash(again), again.hash) == (machine, hash(machine), machine.hash)
    assert load_machine(name) == machine


def test_machines_are_values() -> None:
    machine = load_machine("gddr6-aim-chip")
    assert hash(machine.vector_unit) == hash(load_machine("gddr6-aim-chip").vector_unit)
    with pytest.raises(AttributeError):
        machine.timing.nRP = 1  # type: ignore[misc]


def test_overrides_name_and_hash_the_variant() -> None:
    base = load_machine("gddr6-aim-chip")
    variant = load_machine("gddr6-aim-chip", {"timing.nRP": 30, "bank_unit.accumulators": "2"})
    assert variant.name == "gddr6-aim-chip+bank_unit.accumulators=2+timing.nRP=30"
    assert variant.bank_unit.accumulators == 2
    assert variant.hash != base.hash
    again = load_machine(variant.name)
    assert (again.name, again.hash, again) == (variant.name, variant.hash, variant)
    assert variant.field("timing.nRP").source.startswith("override (was 32: aim_simulator")
    assert load_machine("gddr6-aim-chip+timing.nRP=30", {"timing.nRP": 32}).hash == base.hash


def test_derived_values_follow_overrides() -> None:
    variant = load_machine("gddr6-aim-chip+timing.nWR=40")
    assert variant.timing.nWR2PRE == 48
    assert variant.timing.nWRA2ACT == 80
    assert load_machine("gddr6-aim-chip+timing.nCWL=60").timing.nRD2WR == 0


@pytest.mark.parametrize(
    ("setting", "value"),
    [("refresh.enabled", "false"), ("clock.tck_ns", "0.25"), ("timing.nRP", "0x20"), ("host.call_latency_ns", "1e+4")],
)
def test_text_is_read_as_the_type_of_the_field(setting: str, value: str) -> None:
    machine = load_machine("gddr6-aim-chip", {setting: value})
    assert type(machine.field(setting).value) is type(load_machine("gddr6-aim-chip").field(setting).value)
    assert load_machine(machine.name).hash == machine.hash


def test_the_hash_depends_on_values_only(tmp_path: Path) -> None:
    base = load_machine("gddr6-aim-chip")
    text = """
        description = "another text"
        extends = "gddr6-aim"
        [timing]
        nRP = { source = "measured here", unit = "cycle", value = 32 }
        [organisation]
        channels = { value = 2, unit = "count", source = "counted" }
    """
    assert load_machine(write(tmp_path, text)).hash == base.hash


def test_a_file_extends_a_file_beside_it(tmp_path: Path) -> None:
    channels = '[organisation]\nchannels = { value = 4, unit = "count", source = "s" }\n'
    write(tmp_path, 'extends = "gddr6-aim"\nabstract = true\n' + channels, "base.toml")
    path = write(tmp_path, 'extends = "base.toml"\n')
    machine = load_machine(path, {"bank_unit.accumulators": 4})
    assert machine.name == "mine+bank_unit.accumulators=4"
    assert machine.organisation.channels == 4
    assert load_machine(f"{path}+bank_unit.accumulators=4").hash == machine.hash
    write(tmp_path, 'extends = "mine.toml"\n', "base.toml")
    assert failure(path).code == "machine-file"


def test_unknown_machines_offer_the_nearest_names() -> None:
    error = failure("gddr6-aim-chp")
    assert error.code == "unknown-machine"
    assert str(error) == (
        "there is no machine 'gddr6-aim-chp'\n"
        "  do: nearest names: gddr6-aim-chip, gddr6-aim-card, hbm2-pim-stack; or give the path of a .toml file"
    )
    base = failure("gddr6-aim")
    assert base.code == "unknown-machine"
    assert "choose a size: gddr6-aim-card, gddr6-aim-chip" in str(base)
    assert failure("zzz").code == "unknown-machine"


@pytest.mark.parametrize(
    ("overrides", "code", "text"),
    [
        ({"timing__nRPP": 3}, "unknown-field", "did you mean timing.nRP"),
        ({"accumulators": 3}, "unknown-field", "bank_unit.accumulators"),
        ({"colour": 3}, "unknown-field", "the sections are clock, organisation, bank_unit"),
        ({"timing__nWR2PRE": 3}, "machine-override", "set the fields it follows from: nCWL + nBL + nWR"),
        ({"timing__nRP": 0}, "machine-override", "timing.nRP must be between 1 and 1,000, not 0"),
        ({"timing__nRP": 1.5}, "machine-override", "timing.nRP must be a whole number, not 1.5"),
        ({"timing__nRP": True}, "machine-override", "timing.nRP must be a whole number, not True"),
        ({"timing__nRP": "many"}, "machine-override", "timing.nRP must be a whole number, not 'many'"),
        ({"clock__tck_ns": float("nan")}, "machine-override", "clock.tck_ns must be finite"),
        ({"refresh__enabled": "yes"}, "machine-override", "refresh.enabled must be true or false, not 'yes'"),
        ({"bank_unit__readout": "fp8"}, "machine-override", "bank_unit.readout must be one of bf16, fp32, not 'fp8'"),
        ({"bank_unit__weight_formats": "int3"}, "machine-override", "weight_formats must be among bf16, not 'int3'"),
        ({"aim_simulator__writes_to_stop": 30.0}, "machine-override", "writes_to_stop must not exceed"),
        ({"organisation__banks": 15}, "machine-override", "organisation.banks must be a multiple"),
        ({"bank_unit__lanes": 8}, "machine-override", "organisation.column_bytes must hold one bf16"),
        ({"timing__nREFI": 200}, "machine-override", "timing.nREFI must be longer"),
    ],
)
def test_bad_overrides_name_the_field(overrides: dict[str, str | int], code: str, text: str) -> None:
    error = failure("gddr6-aim-chip", **overrides)
    assert error.code == code
    assert text in str(error)
    assert "gddr6-aim-chip" in str(error)


GOOD = 'channels = { value = 2, unit = "count", source = "s" }'


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("[organisation]\nchannels = 2", "organisation.channels is a bare value"),
        ("[energy]\nio_bit = 5", "energy.io_bit is a bare value"),
        ('[energy]\nio_bit = { value = 5, unit = "pJ per bit", source = "s" }', "energy.io_bit lacks confidence"),
        (
            '[energy]\nio_bit = { value = 5, unit = "pJ per bit", source = "s", confidence = "good" }',
            "energy.io_bit must have a confidence of high, medium, low, not 'good'",
        ),
        (
            '[energy]\nio_bit = { value = 5, unit = "pJ", source = "s", confidence = "low" }',
            "energy.io_bit has the unit 'pJ', the schema says 'pJ per bit'",
        ),
        (
            '[energy]\nio_bit = { value = -5, unit = "pJ per bit", source = "s", confidence = "low" }',
            "energy.io_bit must be between 0 and 1,000, not -5.0",
        ),
        ("[energy]\nio_bits = 5", "energy.io_bits is not in the schema"),
        (
            '[link]\nlanes = { value = 5, unit = "count", source = "s", confidence = "low" }',
            "link.lanes has the unknown key 'confidence'",
        ),
        ('[organisation]\nchannels = { value = 2, unit = "count" }', "organisation.channels lacks source"),
        ("[organisation]\nchannels = { value = 2 }", "organisation.channels lacks source and unit"),
        (f"[organisation]\n{GOOD.replace('count', 'byte')}", "has the unit 'byte', the schema says 'count'"),
        (
            f"[organisation]\n{GOOD.replace(chr(34) + 's' + chr(34), chr(34) * 2)}",
            "organisation.channels has no source",
        ),
        (f"[organisation]\n{GOOD.replace('value = 2', 'value = 2.0')}", "organisation.channels must be a whole number"),
        (f"[organisation]\n{GOOD.replace('value', 'note = 1, value')}", "has the unknown key 'note'"),
        (f"[organisation]\n{GOOD.replace('channels', 'chanels')}", "organisation.chanels is not in the schema"),
        (f"[organization]\n{GOOD}", "organization is neither a section nor a header key; did you mean 'organisation'?"),
        ("timing = 3", "timing must be a table"),
        ("[vector_unit]\nulp = 3", "vector_unit.ulp must be a table of constants"),
        ("generation = 3", "generation must be text"),
        ("", "organisation.channels is missing"),
    ],
)
def test_schema_errors_name_the_field_and_the_file(tmp_path: Path, section: str, text: str) -> None:
    path = write(tmp_path, f'extends = "gddr6-aim"\n{section}\n')
    error = failure(path)
    assert error.code == "machine-schema"
    assert text in error.what
    assert error.where == path


def test_a_bare_value_is_told_what_to_write(tmp_path: Path) -> None:
    graded = failure(write(tmp_path, 'extends = "gddr6-aim"\n[energy]\nio_bit = 5\n'))
    assert graded.remedy == 'write { value = ..., unit = "...", source = "...", confidence = "..." }'
    plain = failure(write(tmp_path, 'extends = "gddr6-aim"\n[timing]\nnRP = 5\n'))
    assert plain.remedy == 'write { value = ..., unit = "...", source = "..." }'


def test_a_file_alone_must_be_complete(tmp_path: Path) -> None:
    assert "generation is missing" in failure(write(tmp_path, "")).what
    text = 'generation = "gddr6-aim"\ndescription = "d"\n'
    assert "clock.tck_ns is missing" in failure(write(tmp_path, text)).what


def test_unreadable_files(tmp_path: Path) -> None:
    assert "No such file" in failure(str(tmp_path / "none.toml")).what
    assert "not valid TOML" in failure(write(tmp_path, "= 3")).what
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in failure(str(tmp_path / "binary.toml")).what
    assert failure(write(tmp_path, 'extends = "no-such"\n')).code == "unknown-machine"


@settings(deadline=None)
@given(st.integers(-10, 2000))
def test_any_whole_number_is_taken_or_refused_by_range(value: int) -> None:
    if 1 <= value <= 1000:
        assert load_machine("gddr6-aim-chip", {"timing.nRTP": value}).timing.nRTP == value
    else:
        assert failure("gddr6-aim-chip", timing__nRTP=value).code == "machine-override"


def test_the_schema_has_a_unit_and_a_range_or_words_for_every_number() -> None:
    kinds = {kind for generation in GENERATIONS.values() for kind in generation.sections.values()}
    for kind in kinds:
        for entry in fields(kind):
            spec: Quantity = entry.metadata["quantity"]
            assert spec.unit
            if entry.type in ("int", "float", "Table"):
                assert spec.low is not None
                assert spec.high is not None


def test_a_generation_has_sections_of_its_own(tmp_path: Path) -> None:
    error = failure(write(tmp_path, 'generation = "mine"\ndescription = "d"\n'))
    assert error.what == "generation is 'mine', which is not known"
    assert error.remedy == "known generations: gddr6-aim, hbm2-pim"
    error = failure(write(tmp_path, 'extends = "hbm2-pim-stack"\n[bank_unit]\n'))
    assert error.what == "bank_unit is neither a section nor a header key"
    assert failure("hbm2-pim-stack", bank_unit__lanes=8).code == "unknown-field"
    assert failure("hbm2-pim-stack", timing__nCLREG=8).code == "unknown-field"
    assert "pim.reserved_row must be the last row" in failure("hbm2-pim-stack", organisation__rows=64).what
    assert "no near-memory unit" in failure("hbm2-pim-stack", vector_unit__present=True).what


def test_what_a_generation_lacks_is_an_error_with_a_code() -> None:
    machine = load_machine("hbm2-pim-stack")
    for attempt in (lambda: machine.bank_unit, lambda: machine.timing, lambda: machine.vector_unit, machine.native):
        with pytest.raises(WordlineError, match="generation hbm2-pim") as caught:
            attempt()
        assert caught.value.code == "unsupported-generation"
    assert not machine.vector_passes.present


def test_turnarounds_of_a_pseudo_channel() -> None:
    machine = load_machine("hbm2-pim-stack")
    timing = machine.section("timing", hbm2_pim.Timing)
    assert (timing.nRD2PRE, timing.nWR2PRE, timing.nRD2WR, timing.nWR2RDL) == (3, 26, 15, 19)
    assert machine.organisation.channel_bytes == 256 << 20
    assert load_machine("hbm2-pim-4stacks").organisation.channels == 64
