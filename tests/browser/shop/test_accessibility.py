"""Every page of the shop in every state, in both themes, on a phone, a tablet and a desktop: axe finds nothing, no
content policy is violated, and no page scrolls sideways. `test_admin_accessibility.py` does this for staff's pages, and
`tests/browser/accounts/` for those of accounts."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings as site_settings
from django.test.signals import template_rendered

from apps.events import views as event_views
from apps.kernel import rate_limits
from apps.kernel.templatetags import fairgate
from tests.browser.accessibility import find_violations
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.browser.shop import choice_states, event_states, order_states, problem_states, queue_states
from tests.browser.shop.shop import Shop, State

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.conftest import Pages

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SHOTS = os.environ.get("SCREENSHOT_FOLDER", "")
STATE_MS_MAX = 15_000
PHONE, TABLET, DESKTOP = (360, 740), (768, 1024), (1440, 900)
STATES: tuple[State, ...] = (
    *event_states.STATES,
    *queue_states.STATES,
    *choice_states.STATES,
    *order_states.STATES,
    *problem_states.STATES,
)
OTHER_TESTS = {
    "admin/": "tests/browser/test_admin_accessibility.py",
    "account/": "tests/browser/accounts/test_account_pages.py",
    "accounts/": "tests/browser/accounts/test_account_pages.py",
    "mfa/": "tests/browser/accounts/test_account_pages.py",
    "orders/find": "tests/browser/accounts/test_account_pages.py",
}
"""Which tests compare the other templates, by the beginning of their names."""
MAILS = "email/"
UNVISITED: dict[str, str] = {}
"""Templates that no state shows, with the reason."""
EXEMPT = {
    # Without scripts nothing else moves the page on, and the wait that it shows is the purpose of the page.
    ("wait_instead_of_the_puzzle", "meta-refresh"),
}
"""Rules that a state may break: the state, and the rule of axe."""


@pytest.fixture
def rendered() -> Iterator[set[str]]:
    """The names of all templates that the site renders, also of those included or extended."""
    names: set[str] = set()

    def note(template: Any, **_: Any) -> None:
        names.add(str(template.name))

    template_rendered.connect(note)
    yield names
    template_rendered.disconnect(note)


@pytest.fixture
def no_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Render also what a process renders once, whatever earlier tests have rendered."""
    event_views._section_row.cache_clear()
    monkeypatch.setattr(fairgate._RenderOnceNode, "render", lambda node, context: node.nodes.render(context))


def _leave(page: "Page") -> None:
    """Leave the state's page, which may be navigating itself: that would interrupt the next state's first request."""
    from playwright.sync_api import Error

    try:
        page.goto("about:blank")
    except Error:
        page.goto("about:blank")


@pytest.mark.usefixtures("no_caches")
def test_every_state_of_the_shop_is_accessible(
    live_site: str, browser_page: "Pages", settings: Any, rendered: set[str], tmp_path: Path
) -> None:
    page = browser_page(*PHONE)
    page.set_default_timeout(STATE_MS_MAX)
    found: list[str] = []
    for state in STATES:
        rate_limits.forget_everything()  # All states come from one address.
        _leave(page)
        page.context.clear_cookies()
        with pytest.MonkeyPatch.context() as patches:
            try:
                state.arrange(Shop(page, live_site, settings, patches, tmp_path))
            except Exception as error:  # The other states are still of interest.
                found.append(f"{state.name} was not reached from {page.url}: {error!r}")
                continue
        found += [f"{state.name}: {finding}" for finding in _find(browser_page, page, state)]
        found += [f"{state.name}: its scripts failed: {error}" for error in browser_page.errors]
        browser_page.errors.clear()
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
    unvisited = _templates() - rendered - set(UNVISITED)
    assert not found, f"{len(found)} findings:\n" + "\n".join(found)
    assert not unvisited, f"no state shows these templates: {sorted(unvisited)}"
    assert not rendered & set(UNVISITED), "these templates are shown by a state now"


def _find(pages: "Pages", page: "Page", state: State) -> list[str]:
    found: list[str] = []
    for width, height in (PHONE, TABLET, DESKTOP):
        if (width, height) == TABLET and not state.differs_on_tablets:
            continue
        page.set_viewport_size({"width": width, "height": height})
        if SHOTS:
            page.screenshot(path=f"{SHOTS}/{state.name}-{width}.png", full_page=True)
        exempt = {rule for name, rule in EXEMPT if name == state.name}
        found += [f"{width} px: {violation}" for violation in find_violations(pages, page, exempt)]
        try:
            assert_nothing_sticks_out(page)
        except AssertionError as error:
            found.append(f"{page.url}: {error}")
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    return found


def _templates() -> set[str]:
    """Return the names of the shop's templates."""
    folder = Path(site_settings.BASE_DIR) / "templates"
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {name for name in names if not name.startswith(tuple(OTHER_TESTS)) and MAILS not in name}
