"""docs/pci.md lists exactly the scripts that run on payment pages, and the pages' policy allows no others."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from apps.orders.models import Payment
from tests.support.factories import make_event
from tests.support.orders.sale import SAME_ORIGIN, joined_browser
from tests.support.servers import CHECKOUT

pytestmark = pytest.mark.django_db(transaction=True)

STATIC = "/static/"
IMPORT = re.compile(r'(?:from|import)\s*\(?"(\.[^"]+)"')
ROW = re.compile(r"^\| ([\w, ]+) \| `([^`]+)` \|", re.MULTILINE)
STRIPE = "https://js.stripe.com/v3/"


class Scripts(HTMLParser):
    """Collects the scripts of a page; one without a source is collected as `inline`."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.sources: set[str] = set()
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.sources.add(dict(attrs).get("src") or "inline")
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def with_imports(source: str) -> set[str]:
    """Return the script and every module that it imports, our own ones by their path in the repository."""
    if not source.startswith(STATIC):
        return {source}
    found, left = set(), [CHECKOUT / "static" / source.removeprefix(STATIC)]
    while left:
        file = left.pop()
        name = file.relative_to(CHECKOUT).as_posix()
        if name not in found:
            found.add(name)
            left += [(file.parent / imported).resolve() for imported in IMPORT.findall(file.read_text())]
    return found


def scripts_of(response: Any) -> set[str]:
    page = Scripts(response.content.decode())
    assert page.handlers == [], "no event handlers in attributes"
    return {name for source in page.sources for name in with_imports(source)}


def listed(page: str) -> set[str]:
    """Return the scripts of this page in the inventory."""
    return {script for pages, script in inventory() if page in pages}


def inventory() -> list[tuple[list[str], str]]:
    """Return the rows of the inventory: pages and script."""
    text = (CHECKOUT / "docs" / "pci.md").read_text()
    return [(pages.split(", "), script) for pages, script in ROW.findall(text)]


def policy_of(response: Any) -> dict[str, list[str]]:
    parts = [part.split() for part in response.headers["Content-Security-Policy"].split(";") if part.strip()]
    return {name: values for name, *values in parts}


@pytest.fixture
def browser() -> Client:
    """A browser that has joined the event's queue."""
    make_event("concert")
    return joined_browser("concert")


@pytest.fixture
def checkout(browser: Client) -> str:
    """The path of a checkout page of this browser."""
    held = browser.post(
        "/api/events/concert/reservations",
        {"seats": ["hall-A-1"]},
        content_type="application/json",
        headers=SAME_ORIGIN | {"idempotency-key": "one"},
    )
    return f"/reservations/{held.json()['reservation_id']}/checkout"


def test_the_checkout_page_runs_the_listed_scripts_and_no_others(browser: Client, checkout: str) -> None:
    response = browser.get(checkout)
    assert response.status_code == 200
    assert scripts_of(response) == listed("checkout") != set()
    assert policy_of(response)["script-src"] == ["'self'"]


def test_the_page_with_stripes_form_runs_the_listed_scripts_and_no_others(browser: Client, checkout: str) -> None:
    form = {"email": "ann@example.org", "name": "Ann", "payment_method": "sandbox", "idempotency_key": "two"}
    page = browser.post(checkout, form, headers=SAME_ORIGIN).url
    action = {"type": "stripe", "client_secret": "pi_1_secret_1", "publishable_key": "pk_test_1"}
    assert Payment.objects.update(provider="stripe", next_action=action) == 1
    response = browser.get(page)
    assert response.status_code == 200
    assert b"data-stripe-form" in response.content
    assert scripts_of(response) == listed("order")
    assert STRIPE in listed("order")
    assert set(policy_of(response)["script-src"]) == {"'self'", "https://js.stripe.com", "https://*.js.stripe.com"}
    assert not {"'unsafe-inline'", "'unsafe-eval'", "data:"} & set(policy_of(response)["script-src"])


def test_the_inventory_names_no_other_page() -> None:
    assert {page for pages, _ in inventory() for page in pages} == {"checkout", "order"}
