"""``python -m benchmarks.timing_speed``: what it prints; speed itself is not judged on loaded computers."""

from __future__ import annotations

import json

import pytest

from benchmarks.timing_speed import main


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "4096x4096 k 32", "--calls", "3", "--json"]) == 0
    (product,) = json.loads(capsys.readouterr().out)["products"]
    assert product["cycles"]["aim-simulator"] == 9664
    assert product["channels"] == 32
    rate = product["channel_cycles_per_second"]["aim-simulator"]
    assert rate == pytest.approx(9664 * 32 / product["seconds"]["aim-simulator"])
    # Published 3 to 4 million; this leaves two orders of magnitude for a computer that does other things.
    assert rate > 10 * product["published_channel_cycles_per_cpu_second"]


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "11008x4096", "--calls", "1"]) == 0
    shown = capsys.readouterr().out
    assert "11008x4096 out 32 ch" in shown
    assert "slowest large product on many channels" in shown
    with pytest.raises(SystemExit):
        main(["--only", "nothing"])
