"""The poster font, embedded in each SVG because an image on a page cannot load other files."""

import base64
from functools import cache

from django.conf import settings

FACE = "Poster"
_FILE = ("static", "fonts", "bebas-neue-bold.woff2")


@cache
def poster_face() -> str:
    """Return the style element that defines the font face `Poster` in an SVG."""
    data = base64.b64encode(settings.BASE_DIR.joinpath(*_FILE).read_bytes()).decode()
    return (
        f"<style>@font-face{{font-family:{FACE};src:url(data:font/woff2;base64,{data}) format('woff2')}}"
        f"text{{font-family:{FACE},Impact,'Arial Narrow Bold',sans-serif}}</style>"
    )
