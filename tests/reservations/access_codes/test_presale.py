"""A presale by access code: at the entrance, at the hold, and on the pages."""

import io
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client

from apps.events import facade as events
from apps.events.models import OnSale
from apps.kernel import clock, rate_limits
from apps.kernel.fastpath import cache
from apps.queue import facade as queue
from apps.queue.entries import vip_links
from apps.queue.errors import PresaleOnly
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.support.api_client import Api, assert_problem
from tests.support.factories import assert_audit_clean, join_directly, make_access_code, make_event, make_hold_request
from tests.support.orders.sale import SAME_ORIGIN
from tests.support.queue.lobbies import make_lobby
from tests.support.races import storm, values
from tests.support.reservations.buyers import outcome_types, submit_hold

pytestmark = pytest.mark.django_db(transaction=True)

FLOOR = {"ga_section": "floor", "ga_quantity": 1}


def make_presale(slug: str = "concert", **spec: Any) -> events.EventView:
    """Create an event on sale whose presale ends in an hour, with the code FANCLUB."""
    presale = events.Presale("code", clock.now() + timedelta(hours=1))
    event = make_event(slug, general_admission=50, presale=presale, **spec)
    make_access_code(event)
    return event


@pytest.fixture
def presale() -> events.EventView:
    return make_presale()


def end_presale() -> None:
    OnSale.objects.update(opens_at=clock.now() - timedelta(hours=2), presale_until=clock.now() - timedelta(seconds=1))
    cache.clear_all()


def enter(api: Api, visitor: str, code: str | None = "FANCLUB", slug: str = "concert") -> Any:
    body = {"visitor_id": visitor} | ({} if code is None else {"access_code": code})
    return api.post(f"/events/{slug}/queue", body)


def try_to_hold(api: Api, token: str, **payload: Any) -> Any:
    return api.post("/events/concert/reservations", FLOOR | payload, token=token, key=f"key-{payload}")


def test_only_visitors_with_a_code_join_during_the_presale(presale, api) -> None:
    refused = enter(api, "visitor-0001", None)
    problem = assert_problem(refused, 403, "presale-only")
    assert (problem["condition"], problem["until"]) == ("code", clock.iso(presale.policy.presale.until))
    assert_problem(enter(api, "visitor-0001", "WRONG"), 403, "access-code-wrong")
    assert_problem(enter(api, "visitor-0001", ""), 403, "presale-only")
    assert_problem(api.post("/events/concert/queue", {"access_code": 7}), 422, "invalid")
    assert not QueueEntry.objects.exists()
    assert enter(api, "visitor-0001", " fanclub ").status_code == 201
    assert enter(api, "visitor-0001", None).status_code == 201, "the same entry"
    assert QueueEntry.objects.count() == 1


def test_a_hold_of_the_presale_needs_the_code_and_uses_it(presale, api) -> None:
    token = enter(api, "visitor-0001").json()["admission_token"]
    assert_problem(try_to_hold(api, token), 403, "access-code-required")
    assert_problem(try_to_hold(api, token, access_code="WRONG"), 403, "access-code-wrong")
    assert try_to_hold(api, token, access_code="FANCLUB").status_code == 201
    assert Reservation.objects.get().access_code.code == "FANCLUB"
    assert_audit_clean()


def test_after_the_presale_any_visitor_joins_and_holds(presale, api) -> None:
    end_presale()
    token = enter(api, "visitor-0001", None).json()["admission_token"]
    assert try_to_hold(api, token).status_code == 201
    assert enter(api, "visitor-0002", "WRONG").status_code == 201, "a code is not asked for"


def test_the_join_decides_by_its_own_time_under_the_rooms_lock(presale) -> None:
    """A caller without access is refused whatever the view has checked before."""
    caller = queue.Caller(visitor_id="a" * 32)
    with pytest.raises(PresaleOnly):
        join_directly(presale, caller)
    with pytest.raises(PresaleOnly):
        queue.join(presale, caller)
    assert queue.join(presale, caller, access=queue.PresaleAccess()).is_ready


def test_two_holds_at_once_use_a_code_once_and_a_used_up_code_lets_no_visitor_join(presale) -> None:
    """Both entries are ready. The first hold commits under the code's lock; the second counts it and is refused."""
    presale_event = make_presale("play")
    code = make_access_code(presale_event, code="ONCE", uses_max=1)
    callers = [queue.Caller(visitor_id=letter * 32) for letter in "abc"]
    entries = [queue.join(presale_event, caller, access=queue.PresaleAccess()) for caller in callers]
    requests = [make_hold_request(presale_event, entry, **FLOOR, access_code=code.code) for entry in entries[:2]]
    outcomes = values(storm(2, lambda number: submit_hold(requests[number])))
    assert outcome_types(outcomes) == ["access-code-used-up", "held"]
    api = Api()
    assert_problem(enter(api, "visitor-0009", "ONCE", "play"), 409, "access-code-used-up")
    assert_audit_clean()


def test_a_code_whose_uses_visitors_in_line_have_is_refused_clearly_and_a_leaver_returns_one(presale, api) -> None:
    make_access_code(presale, code="ONCE", uses_max=1)
    token = enter(api, "visitor-0001", "ONCE").json()["admission_token"]
    assert_problem(enter(api, "visitor-0002", "ONCE"), 409, "presale-code-in-use")
    page = Client().post(
        "/events/concert/join", {"visitor_id": "visitor-0002", "access_code": "once"}, headers=SAME_ORIGIN
    )
    assert page.status_code == 409
    assert "All uses of this access code are taken" in page.content.decode()
    assert enter(api, "visitor-0001", "ONCE").status_code == 201
    assert api.delete("/events/concert/queue", token=token).status_code == 200
    assert enter(api, "visitor-0002", "ONCE").status_code == 201


def test_a_code_that_is_used_up_is_refused_on_the_page_of_the_presale(presale) -> None:
    code = make_access_code(presale, code="ONCE", uses_max=1)
    entry = queue.join(presale, queue.Caller(visitor_id="a" * 32), access=queue.PresaleAccess())
    assert reservations.hold_one(presale, entry, FLOOR | {"access_code": code.code}, "key").status == 201
    page = Client().post(
        "/events/concert/join", {"visitor_id": "visitor-0002", "access_code": "once"}, headers=SAME_ORIGIN
    )
    assert page.status_code == 409
    assert "This access code has reached its usage limit." in page.content.decode()


def test_attempts_are_limited(presale, api, monkeypatch) -> None:
    asked = []

    def check(kind: str, *keys: str) -> float | None:
        asked.append(kind)
        return 4.0 if kind == "code" else None

    monkeypatch.setattr(rate_limits, "check_request", check)
    assert_problem(enter(api, "visitor-0001", "GUESS"), 429, "rate-limited")
    assert "code" in asked


def test_a_vip_link_needs_no_code(presale) -> None:
    link = vip_links.make_link(presale.id, who="boss")
    token = vip_links.address_of(link, presale.slug).rpartition("/")[2]
    entry = vip_links.redeem_link(presale, token, queue.Caller(visitor_id="v" * 32))
    answer = reservations.hold_one(presale, entry, FLOOR, "key")
    assert answer.status == 201
    assert_audit_clean()


def test_the_lobby_of_a_presale_wants_the_code_too() -> None:
    until = clock.now() + timedelta(hours=2)
    event, _ = make_lobby(presale=events.Presale("code", until))
    make_access_code(event)
    api = Api()
    assert_problem(enter(api, "visitor-0001", None), 403, "presale-only")
    assert enter(api, "visitor-0001").json()["status"] == "lobby"


def test_the_pages_ask_for_the_code_and_keep_it(presale) -> None:
    browser = Client()
    assert "you need an access code" in browser.get("/events/concert/").content.decode()
    form = {"visitor_id": "visitor-0001"}
    asked = browser.post("/events/concert/join", form, headers=SAME_ORIGIN)
    assert asked.status_code == 403
    assert 'name="access_code"' in asked.content.decode()
    wrong = browser.post("/events/concert/join", form | {"access_code": "<b>"}, headers=SAME_ORIGIN)
    assert wrong.status_code == 403
    assert "&lt;b&gt;" in wrong.content.decode()
    assert "This access code is not valid" in wrong.content.decode()
    joined = browser.post("/events/concert/join", form | {"access_code": "fanclub"}, headers=SAME_ORIGIN)
    assert joined.url == "/events/concert/choose"
    page = browser.get(joined.url).content.decode()
    assert 'value="FANCLUB"' in page
    end_presale()
    assert "you need an access code" not in Client().get("/events/concert/").content.decode()


def test_the_api_describes_the_presale(presale, api) -> None:
    found = api.get("/events/concert").json()["presale"]
    assert (found["condition"], datetime.fromisoformat(found["until"])) == ("code", presale.policy.presale.until)
    end_presale()
    assert api.get("/events/concert").json()["presale"] is None


def test_the_command_creates_a_presale() -> None:
    def create(presale: str) -> None:
        call_command(
            "create_event", "gala", "--name", "Gala", "--venue", "Hall", "--timezone", "UTC",
            "--starts", "2099-05-01T20:00+02:00",
            "--general-admission", "Floor:50:1000", "--currency", "EUR", "--on-sale", "2099-03-01T12:00+02:00",
            "--presale", presale, stdout=io.StringIO(), stderr=io.StringIO(),
        )  # fmt: skip

    for wrong in ("fan", "fan=2099-03-02T12:00+02:00", "code=soon", "code=2099-03-01T12:00+02:00"):
        with pytest.raises(CommandError):
            create(wrong)
    for _ in range(2):
        create("code=2099-03-02T12:00+02:00")
    with pytest.raises(CommandError, match="presale"):
        create("none")
    on_sale = OnSale.objects.get()
    assert (on_sale.presale_condition, on_sale.presale_until.isoformat()) == ("code", "2099-03-02T10:00:00+00:00")
    for broken in ({"presale_until": None}, {"presale_condition": ""}, {"presale_until": on_sale.opens_at}):
        with pytest.raises(IntegrityError, match="on_sale_presale_has_condition_and_end"), transaction.atomic():
            OnSale.objects.update(**broken)
