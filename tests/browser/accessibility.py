"""Compares pages with the rules of axe, in the light and in the dark theme."""

from typing import TYPE_CHECKING

from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.conftest import Pages

_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_NODES_SHOWN = 3
_axe = Axe()


def find_violations(pages: "Pages", page: "Page") -> list[str]:
    """Return what axe refuses on the page in either theme, a line for each rule.

    axe itself sets inline styles, which the content policy blocks: these errors are not the page's.
    """
    found: list[str] = []
    own_errors = list(pages.errors)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        answer = _axe.run(page, options={"runOnly": _RULES, "resultTypes": ["violations"]}).response
        for violation in answer["violations"]:
            nodes = " | ".join(node["html"][:160] for node in violation["nodes"][:_NODES_SHOWN])
            found.append(f"{page.url} {scheme}: {violation['id']}, {len(violation['nodes'])} elements: {nodes}")
    page.evaluate("0")  # Events that axe caused have arrived with this answer.
    pages.errors[:] = own_errors
    return found
