"""The page of the cycle suite: every case has its bars and its point, and the document is well-formed."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import baseline
from benchmarks.__main__ import main
from wordline.machines import load_machine
from wordline.sim.limits import gemv_limits, peak_share


def test_the_page_shows_every_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "bench.html"
    main(["--only", "x576", "--html", str(target)])
    capsys.readouterr()
    text = target.read_text(encoding="utf-8")
    body = ElementTree.fromstring(text[text.index("<body") : text.index("</html>")])
    names = [element.text for element in body.iter("text")]
    points = [element.findtext("title") or "" for element in body.iter("circle")]
    for what in ("192x576", "576x576", "1536x576", "49152x576"):
        assert what in names
        assert any(f", {what}: " in point for point in points)
    bars = [element for element in body.iter("rect") if (element.findtext("title") or "").startswith("mac: ")]
    assert len(bars) == len(points)
    assert "<script" not in text


def test_the_roof_is_the_limit_of_large_products() -> None:
    """For one vector the roof is what L2 says; the more share a row, the nearer to what refresh leaves."""
    machine = load_machine("gddr6-aim-chip")
    limits = gemv_limits(machine, 4096, 4096)
    assert peak_share(machine, 1) == pytest.approx(limits.l0 / limits.l2)
    assert peak_share(machine, 1) < peak_share(machine, 4) < peak_share(machine, 1e9)
    assert peak_share(machine, 1e9) == pytest.approx(1 - machine.timing.nRFC / machine.timing.nREFI)


def test_a_what_if_stands_beside_the_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    """Two accumulators are read out more often; nothing is compared, and what does not fit is said."""
    assert main(["--only", "gddr6-aim-chip gemv 576x1536", "--set", "bank_unit.accumulators=2", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert entry["name"] == "gddr6-aim-chip+bank_unit.accumulators=2 gemv 576x1536"
    assert entry["baseline_cycles"] is None
    assert entry["cycles"] > baseline.read()["gddr6-aim-chip gemv 576x1536"]
    assert main(["--only", "gddr6-aim-chip gemv 4096x11008", "--set", "scratch.bytes_per_channel=16384"]) == 0
    assert "needs 22016 bytes of scratch" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--set", "bank_unit.accumulators=2", "--accept"])
