"""Compares pages with the rules of axe, in the light and in the dark theme."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.conftest import Pages

_RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
_RULES_OF_COLORS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""What may differ in the other theme: themes change colors only."""
_NODES_SHOWN = 3
_axe = Axe()


def find_violations(pages: "Pages", page: "Page", exempt: Collection[str] = ()) -> list[str]:
    """Return what axe refuses on the page in either theme, a line for each rule that is not exempt.

    axe itself sets inline styles, which the content policy blocks: these errors are not the page's.
    """
    found: list[str] = []
    own_errors = list(pages.errors)
    for scheme, rules in (("light", _RULES), ("dark", _RULES_OF_COLORS)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for violation in _run(page, rules):
            if violation["id"] in exempt:
                continue
            nodes = " | ".join(node["html"][:160] for node in violation["nodes"][:_NODES_SHOWN])
            found.append(f"{page.url} {scheme}: {violation['id']}, {len(violation['nodes'])} elements: {nodes}")
    page.evaluate("0")  # Events that axe caused have arrived with this answer.
    pages.errors[:] = own_errors
    return found


def _run(page: "Page", rules: dict[str, Any]) -> list[dict[str, Any]]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe.axe_script)
    violations: list[dict[str, Any]] = page.evaluate(
        "options => axe.run(document, options).then(({violations}) => violations)",
        {"runOnly": rules, "resultTypes": ["violations"], "preload": False},
    )
    return violations
