"""Colors of a plan as #rrggbb. Any other value is replaced, because colors are inserted into pages."""

import re
from collections.abc import Collection

PALETTE = (
    "#c2410c", "#0f766e", "#6d28d9", "#b45309", "#1d4ed8", "#be185d", "#4d7c0f", "#0e7490", "#7c2d12", "#4338ca",
)  # fmt: skip
_HEX = re.compile(r"#([0-9a-f]{3}|[0-9a-f]{4}|[0-9a-f]{6}|[0-9a-f]{8})", re.ASCII)
_RGB = re.compile(r"rgba?\(\s*(\d{1,3})(?:\s*,\s*|\s+)(\d{1,3})(?:\s*,\s*|\s+)(\d{1,3})\s*(?:[,/][^)]*)?\)", re.ASCII)
LENGTH_MAX = 60
"""Of a color's text. The work of the patterns grows faster than the text."""
# The sixteen color names of HTML and some more that plan editors offer.
_NAMED = {
    "black": "#000000", "silver": "#c0c0c0", "gray": "#808080", "grey": "#808080", "white": "#ffffff",
    "maroon": "#800000", "red": "#ff0000", "purple": "#800080", "fuchsia": "#ff00ff", "magenta": "#ff00ff",
    "green": "#008000", "lime": "#00ff00", "olive": "#808000", "yellow": "#ffff00", "navy": "#000080",
    "blue": "#0000ff", "teal": "#008080", "aqua": "#00ffff", "cyan": "#00ffff", "orange": "#ffa500",
    "pink": "#ffc0cb", "brown": "#a52a2a", "gold": "#ffd700", "indigo": "#4b0082", "violet": "#ee82ee",
    "crimson": "#dc143c", "coral": "#ff7f50", "tomato": "#ff6347", "salmon": "#fa8072", "turquoise": "#40e0d0",
    "lightgray": "#d3d3d3", "lightgrey": "#d3d3d3", "darkgray": "#a9a9a9", "darkgrey": "#a9a9a9",
    "lightblue": "#add8e6", "darkblue": "#00008b", "lightgreen": "#90ee90", "darkgreen": "#006400",
    "darkred": "#8b0000", "steelblue": "#4682b4", "slategray": "#708090",
}  # fmt: skip


def normal_color(value: str | None) -> str:
    """Return the color as #rrggbb, or an empty string if there is none or it is not recognized."""
    if value is None or len(value) > LENGTH_MAX:
        return ""
    text = value.strip().lower()
    if found := _HEX.fullmatch(text):
        digits = found[1]
        wide = digits if len(digits) >= 6 else "".join(digit * 2 for digit in digits)
        return "" if wide[6:] == "00" else f"#{wide[:6]}"
    if found := _RGB.fullmatch(text):
        return "#" + "".join(f"{min(int(part), 255):02x}" for part in found.groups())
    return _NAMED.get(text, "")


def category_color(value: str | None, index: int) -> str:
    """Return the category's own color, or one of the palette that differs from its neighbors in the list."""
    return normal_color(value) or PALETTE[index % len(PALETTE)]


def distinct_color(value: str | None, taken: Collection[str]) -> str:
    """Return the color if no other category has it, else the first of the palette that none has. With more categories
    than the palette has colors, colors repeat."""
    own = normal_color(value)
    if own and own not in taken:
        return own
    return next((color for color in PALETTE if color not in taken), PALETTE[len(taken) % len(PALETTE)])
