"""The page of the cycle suite: every case has its bars and its point, and the document is well-formed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

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
