"""``python -m benchmarks.search``: exhaustive and exact."""

from __future__ import annotations

import json

import pytest

from benchmarks import search


def test_every_candidate_of_a_product(capsys: pytest.CaptureFixture[str]) -> None:
    assert search.main(["--only", "card gemv 1024x1024", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["name"] == "gddr6-aim-card gemv 1024x1024"
    assert found["first"] == {"choice": "plain", "cycles": 636}
    assert found["best"] == {"choice": "K in 2 parts", "cycles": 621}
    assert found["percent"]["best"] == pytest.approx(100 * found["L3_cycles"] / 621)
    assert search.main(["--only", "card gemv 1024x1024"]) == 0
    text = capsys.readouterr().out
    assert "what the search finds, gddr6-aim-card" in text
    assert "78.4" in text


def test_a_what_if(capsys: pytest.CaptureFixture[str]) -> None:
    assert search.main(["--only", "card gemv 576x1536", "--set", "bank_unit.accumulators=2", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["name"] == "gddr6-aim-card+bank_unit.accumulators=2 gemv 576x1536"
    assert found["first"]["choice"] == "K in 4 parts, padded"


def test_no_such_product(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        search.main(["--only", "decode"])
    assert "no product contains 'decode'" in capsys.readouterr().err
