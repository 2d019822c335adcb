"""Shapes of SVG pictures as text: what reports draw with. Coordinates and sizes are pixels."""

from __future__ import annotations

from xml.sax.saxutils import escape


def box(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    """A filled rectangle that says ``title`` under the pointer; never so thin that it cannot be seen."""
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.3):.2f}" height="{max(height, 0.3):.2f}" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )


def text(x: float, y: float, content: str) -> str:
    """A line of text that starts at (x, y)."""
    return f'<text x="{x:.1f}" y="{y:.1f}">{escape(content)}</text>'
