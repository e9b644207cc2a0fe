"""PDF text layout: brand colors and fonts, line wrapping, and a fallback font for names in any script."""

from functools import cache

from reportlab.lib.colors import HexColor
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

INK, ACCENT, MUTED, PALE = HexColor("#2b1a17"), HexColor("#b92d19"), HexColor("#6b564e"), HexColor("#fff7ec")
TEXT, BOLD, FALLBACK = "Vera", "VeraBd", "STSong-Light"


@cache
def register_fonts() -> None:
    pdfmetrics.registerFont(TTFont(TEXT, "Vera.ttf"))
    pdfmetrics.registerFont(TTFont(BOLD, "VeraBd.ttf"))
    # For names in scripts that the first two fonts lack. PDF readers include this font.
    pdfmetrics.registerFont(UnicodeCIDFont(FALLBACK))


def _split_by_font(text: str, font: str) -> list[tuple[str, str]]:
    """Split the text into runs, each with a font that has its characters."""
    known = pdfmetrics.getFont(font).face.charToGlyph
    runs: list[tuple[str, str]] = []
    for character in text:
        needed = font if ord(character) in known else FALLBACK
        if runs and runs[-1][1] == needed:
            runs[-1] = (runs[-1][0] + character, needed)
        else:
            runs.append((character, needed))
    return runs


def width_of(text: str, font: str, size: float) -> float:
    return sum(pdfmetrics.stringWidth(run, name, size) for run, name in _split_by_font(text, font))


def write(canvas: Canvas, x: float, y: float, text: str, font: str, size: float) -> None:
    for run, name in _split_by_font(text, font):
        canvas.setFont(name, size)
        canvas.drawString(x, y, run)
        x += pdfmetrics.stringWidth(run, name, size)


def write_centered(canvas: Canvas, middle: float, y: float, text: str, font: str, size: float) -> None:
    write(canvas, middle - width_of(text, font, size) / 2, y, text, font, size)


def write_right(canvas: Canvas, right: float, y: float, text: str, font: str, size: float) -> None:
    write(canvas, right - width_of(text, font, size), y, text, font, size)


def fit(text: str, font: str, width: float) -> tuple[float, list[str]]:
    """Return the largest size at which a title fits its band, and its lines at that size. A title that does not fit at
    the smallest size is cut."""
    for size, lines_max in ((19.0, 2), (15.0, 3), (11.0, 4)):
        lines = wrap(text, font, size, width)
        if len(lines) <= lines_max:
            break
    return size, lines[:lines_max]


def wrap(text: str, font: str, size: float, width: float) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and width_of(f"{lines[-1]} {word}", font, size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
