"""An artifact comes back as it was written, or is refused with one clear error."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.artifacts import ARGUMENTS, counting_program, tiny_contents
from wordline.artifact import check_target, open_artifact, write_artifact
from wordline.artifact.write import manifest_bytes
from wordline.errors import WordlineError
from wordline.machines import load_machine


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("artifact") / "tiny.wl", tiny_contents())


WRITER = """
import dataclasses, sys, time
from tests.support.artifacts import tiny_contents
from wordline.artifact import write_artifact
contents = tiny_contents()
def slow():
    print("writing", flush=True)
    time.sleep(100)
    yield from contents.weights
write_artifact(sys.argv[1], dataclasses.replace(contents, weights=slow()))
"""


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    (tmp_path / ".mine.wl.0123456789ab").mkdir()
    (tmp_path / ".mine.wl.0123456789ab" / "something else").touch()
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "killed.wl")], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        (half,) = tmp_path.glob(".killed.wl.*")
        write_artifact(tmp_path / "other.wl", tiny_contents())
        assert half.is_dir(), "its writer lives"
        writer.kill()
        writer.wait()
        assert half.is_dir()
    write_artifact(tmp_path / "other.wl", tiny_contents())
    assert sorted(p.name for p in tmp_path.iterdir()) == [".mine.wl.0123456789ab", "other.wl"]


def test_writers_of_the_same_artifact_take_turns(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(10):
            write_artifact(tmp_path / "same.wl", tiny_contents())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    open_artifact(tmp_path / "same.wl")
    assert [p.name for p in tmp_path.iterdir()] == ["same.wl"]


def test_what_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for target in (tmp_path / "file" / "x.wl", tmp_path / "file" / "deep" / "x.wl", Path("/proc/1/x/y.wl")):
        with pytest.raises(WordlineError, match="is no folder that you may write to") as caught:
            check_target(target)
        assert caught.value.code == "write-failed"


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    for name in ("old.wl", "new.wl"):
        (tmp_path / name).symlink_to(tmp_path / "store" / name)
    write_artifact(tmp_path / "store" / "old.wl", tiny_contents())
    for name in ("old.wl", "new.wl"):
        write_artifact(tmp_path / name, tiny_contents())
        open_artifact(tmp_path / name)
        assert (tmp_path / name).is_symlink()
    assert sorted(p.name for p in (tmp_path / "store").iterdir()) == ["new.wl", "old.wl"]


@pytest.mark.parametrize("part", ["manifest.json", "program.bin", "weights.bin", "tokenizer.json"])
def test_parts_are_regular_files(copy: Path, part: str) -> None:
    (copy / part).unlink()
    os.mkfifo(copy / part)
    assert "is not a regular file" in refused(copy).what
    (copy / part).unlink()
    (copy / part).symlink_to("/dev/zero")
    assert "is not a regular file" in refused(copy).what
    (copy / part).unlink()
    (copy / part).symlink_to(part)
    assert refused(copy).code == "corrupt-artifact"


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "copy.wl"))


def edit(path: Path, *keys: str | int, value: Any) -> None:
    """Change one value of a manifest and give it the digest that belongs to it."""
    values = json.loads((path / "manifest.json").read_bytes())
    del values["sha256"]
    inner = values
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    (path / "manifest.json").write_bytes(manifest_bytes(values))


def refused(path: Path, **arguments: Any) -> WordlineError:
    with pytest.raises(WordlineError) as caught:
        open_artifact(path, **arguments)
    assert caught.value.remedy
    return caught.value


def test_everything_comes_back(tiny: Path) -> None:
    contents, artifact = tiny_contents(), open_artifact(tiny)
    assert artifact.manifest.memory == contents.memory
    assert artifact.manifest.model == contents.model
    assert artifact.manifest.tokenizer == contents.tokenizer
    assert artifact.manifest.logits == contents.logits
    assert artifact.manifest.entries["decode"].provenance == contents.entries["decode"].provenance
    assert artifact.image("decode") == counting_program(load_machine("gddr6-aim-chip")).to_bytes()
    assert artifact.program("decode") == counting_program(load_machine("gddr6-aim-chip"))
    assert artifact.tokenizer_json() == contents.tokenizer_json
    assert artifact.weights is not None
    assert contents.weights is not None
    assert bytes(artifact.weights) == b"".join(block.tobytes() for block in contents.weights)


def test_an_artifact_without_weights_opens_unbound(tmp_path: Path) -> None:
    artifact = open_artifact(write_artifact(tmp_path / "a.wl", tiny_contents(weights=None, tokenizer_json=None)))
    assert artifact.weights is None
    with pytest.raises(WordlineError, match="holds no tokenizer"):
        artifact.tokenizer_json()


def test_writing_again_replaces(copy: Path) -> None:
    write_artifact(copy, tiny_contents(weights=None))
    assert open_artifact(copy).weights is None
    assert [p.name for p in copy.parent.iterdir()] == ["copy.wl"]


def test_the_name_and_the_target_are_checked(tmp_path: Path) -> None:
    with pytest.raises(WordlineError, match=r"does not end in \.wl"):
        write_artifact(tmp_path / "model", tiny_contents())
    (tmp_path / "other.wl").mkdir()
    (tmp_path / "other.wl" / "thesis.txt").write_text("mine")
    with pytest.raises(WordlineError, match="is not an artifact"):
        write_artifact(tmp_path / "other.wl", tiny_contents())
    assert (tmp_path / "other.wl" / "thesis.txt").read_text() == "mine"


def test_a_full_disk_leaves_nothing_behind_and_keeps_the_old_artifact(copy: Path) -> None:
    def weights() -> Iterator[npt.NDArray[np.uint16]]:
        yield np.zeros(1 << 15, np.uint16)
        raise OSError(errno.ENOSPC, "No space left on device")

    for target in (copy, copy.parent / "new.wl"):
        with pytest.raises(WordlineError) as caught:
            write_artifact(target, tiny_contents(weights=weights()))
        assert caught.value.code == "write-failed"
        assert "No space left on device" in str(caught.value)
        assert "free space" in str(caught.value)
    assert [p.name for p in copy.parent.iterdir()] == ["copy.wl"]
    assert open_artifact(copy).weights is not None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_really_full_device_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def full(self: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        return real(Path("/dev/full") if self.name == "weights.bin" else self, mode, *args, **more)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(WordlineError, match="No space left on device"):
        write_artifact(tmp_path / "a.wl", tiny_contents())
    assert list(tmp_path.iterdir()) == []


def test_missing_artifact(tmp_path: Path) -> None:
    error = refused(tmp_path / "nothing.wl")
    assert error.code == "artifact-not-found"
    assert "wordline compile" in str(error)


def test_machine_mismatch_names_both_machines(tiny: Path) -> None:
    error = refused(tiny, machine=load_machine("gddr6-aim-chip", {"bank_unit.accumulators": 2}))
    assert error.code == "machine-mismatch"
    assert "'gddr6-aim-chip', not for 'gddr6-aim-chip+bank_unit.accumulators=2'" in error.what
    assert "--machine" in str(error)


def test_a_machine_that_changed_since_is_noticed(copy: Path) -> None:
    edit(copy, "machine", "hash", value="0" * 64)
    assert "has changed since" in refused(copy).what


def test_schema_versions(copy: Path) -> None:
    edit(copy, "schema", value=99)
    error = refused(copy)
    assert error.code == "artifact-version"
    assert "99" in error.what


@pytest.mark.parametrize("part", ["manifest.json", "program.bin", "weights.bin", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "extend", "remove"])
def test_damaged_parts_are_named(copy: Path, part: str, damage: str) -> None:
    file = copy / part
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "truncate":
        del data[-1:]
    elif damage == "extend":
        data += b"!"
    file.write_bytes(data)
    if damage == "remove":
        file.unlink()
    error = refused(copy)
    assert error.code == "corrupt-artifact"
    assert part in error.what


@pytest.mark.parametrize(
    ("keys", "value", "words"),
    [
        (("model",), 3, "model must be an object"),
        (("model", "name"), None, "model.name must be a text"),
        (("memory", "weight_rows"), -1, "memory.weight_rows must be a whole number"),
        (("memory", "weight_rows"), True, "memory.weight_rows must be a whole number"),
        (("memory", "weight_rows"), 1, "1 rows are 65536"),
        (("memory", "kv", "first_row"), 1 << 40, "KV pages start at"),
        (("memory", "kv", "page_tokens"), 0, "size of the KV cache is 0"),
        (("memory", "kv", "max_context"), 5000, "KV pages hold 1024 tokens, the context is 5000"),
        (("memory", "weights", 0, "rows"), 3, "weight 'w' ends at row 3 of 2"),
        (("memory", "surprise"), 1, "memory.surprise is not a known key"),
        (("generation",), "hbm9", "generation 'hbm9'"),
        (("logits", "dtype"), "fp4", "unknown format 'fp4'"),
        (("logits", "vocab"), 33, "33 entries, padded to 32"),
        (("tokenizer", "eos_ids"), [20], "token id 20 is outside"),
        (("parts", "../evil"), {"bytes": 0, "sha256": ""}, "leads out of the folder"),
        (("entries",), {}, "no entry points"),
        (("entries", "decode", "offset"), 64, "are misplaced"),
        (("entries", "decode", "bytes"), 100, "malformed"),
        (("entries", "decode", "argument_words"), 5, "'logits_address' is at word 4 of 5"),
        (("entries", "decode", "arguments"), {**ARGUMENTS, "x": 8}, "'x' is at word 8"),
        (("entries", "decode", "arguments"), {"token": 0}, "argument 'position' is missing"),
        (("entries", "decode", "provenance", 0, "last"), 9, "names instructions 0-9 of stream 0"),
        (("entries", "decode", "provenance", 0, "stream"), 3, "of stream 3"),
    ],
)
def test_a_wrong_manifest_is_refused_even_with_a_right_hash(
    copy: Path, keys: tuple[str | int, ...], value: Any, words: str
) -> None:
    edit(copy, *keys, value=value)
    error = refused(copy)
    assert error.code == "corrupt-artifact"
    assert words in error.what


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_change_of_the_manifest_text_gets_through(tiny: Path, tmp_path: Path, data: st.DataObject) -> None:
    text = bytearray((tiny / "manifest.json").read_bytes())
    at = data.draw(st.integers(0, len(text) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != text[at]))
    before = json.loads(text)
    text[at] = byte
    try:
        same = json.loads(text) == before
    except ValueError:
        same = False
    copy = tmp_path / "m.wl"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(tiny, copy)
    (copy / "manifest.json").write_bytes(text)
    if same:  # a changed byte of white space, for example
        open_artifact(copy)
    else:
        assert refused(copy).code in ("corrupt-artifact", "artifact-version")


def test_without_verification_only_lengths_are_checked(copy: Path) -> None:
    weights = copy / "weights.bin"
    weights.write_bytes(bytes(weights.stat().st_size))
    assert open_artifact(copy, verify=False).weights is not None
    weights.write_bytes(b"")
    assert refused(copy, verify=False).code == "corrupt-artifact"


def test_unknown_entries_name_the_known_ones(tiny: Path) -> None:
    with pytest.raises(WordlineError, match="its entries are: decode"):
        open_artifact(tiny).image("prefill")


def test_an_artifact_must_fit_its_machine(tmp_path: Path) -> None:
    contents = tiny_contents()
    kv = dataclasses.replace(contents.memory.kv, first_row=20000)
    write_artifact(tmp_path / "a.wl", dataclasses.replace(contents, memory=dataclasses.replace(contents.memory, kv=kv)))
    assert "the machine has 16384" in refused(tmp_path / "a.wl").what
