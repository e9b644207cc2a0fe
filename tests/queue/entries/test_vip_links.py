"""VIP links: opening a link changes nothing, it is used once, and its visitor goes ahead within the caps."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from apps.events import facade as events
from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.tokens import jwt
from apps.queue.entries import vip_links
from apps.queue.errors import ActRefused, LinkRefused, RoomDrained
from apps.queue.identity.caller import Caller, new_visitor_secret
from apps.queue.models import QueueEntry, RoomAct, VipLink, WaitingRoom
from apps.queue.room import operations
from tests.support.factories import assert_audit_clean, join
from tests.support.queue.rooms import join_waiting_entries, make_room, row, tick
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db


def visitor() -> Caller:
    return Caller(visitor_id=new_visitor_secret())


def new_link(event: events.EventView, **more: object) -> tuple[VipLink, str]:
    link = vip_links.make_link(event.id, who="boss", **more)  # type: ignore[arg-type]
    return link, vip_links.address_of(link, event.slug).rpartition("/")[2]


def busy(active: int = 2, line: int = 4) -> events.EventView:
    """An open room with a waiting queue and one slot more than admitted visitors."""
    event = make_room(active=active, general_admission=20)
    join_waiting_entries(event, line)
    for _ in range(active - 1):
        operations.admit_now(event.id, 1, who="boss")
    return event


def test_using_a_link_admits_the_visitor_ahead_of_the_queue_marks_the_entry_and_records_it() -> None:
    event = busy()
    link, token = new_link(event, note="Ann of the press", hours=2)
    entry = vip_links.redeem_link(event, token, visitor())
    assert entry.is_ready
    assert row(entry).marked == "vip"
    assert row(entry).admission_expires_at is not None, "its visitor is present"
    assert (WaitingRoom.objects.get().head, entry.number) == (1, 5)
    link.refresh_from_db()
    assert (link.entry_id, link.used_at is not None) == (entry.id, True)
    act = RoomAct.objects.get(what="let in")
    assert (act.who, act.detail, act.why) == ("VIP link of boss", "number 5, by a VIP link", "Ann of the press")
    assert tick(event) == 0, "it counts against the cap"
    assert_audit_clean()


def test_without_a_free_slot_the_visitor_is_first_and_using_the_link_again_returns_the_same_entry() -> None:
    event = busy(active=2)
    operations.admit_now(event.id, 1, who="boss")
    _, token = new_link(event)
    ann = visitor()
    entry = vip_links.redeem_link(event, token, ann)
    assert entry.status == "waiting"
    assert vip_links.redeem_link(event, token, ann).id == entry.id
    assert vip_links.view_link(event, token, ann).is_used_by_caller
    QueueEntry.objects.filter(number=1).update(status="left", ended_at=clock.now())
    assert tick(event) == 1
    assert row(entry).status == "ready"
    assert_audit_clean()


def test_an_existing_entry_moves_ahead() -> None:
    event = busy()
    ann = visitor()
    standing = join(event, visitor_id=ann.visitor_id)
    _, token = new_link(event)
    assert vip_links.redeem_link(event, token, ann).id == standing.id
    assert row(standing).marked == "vip"


def test_with_no_entry_ahead_nothing_is_marked_but_the_link_is_used() -> None:
    event = make_room(active=3)
    link, token = new_link(event)
    entry = vip_links.redeem_link(event, token, visitor())
    assert (entry.is_ready, row(entry).marked) == (True, "")
    link.refresh_from_db()
    assert link.entry_id == entry.id


def test_a_second_link_is_not_used_for_an_entry_that_goes_ahead_already() -> None:
    event = busy()
    ann = visitor()
    first, second = new_link(event), new_link(event)
    entry = vip_links.redeem_link(event, first[1], ann)
    assert vip_links.redeem_link(event, second[1], ann).id == entry.id
    second[0].refresh_from_db()
    assert vip_links.state_of(second[0], clock.now()) == "open"


def test_in_a_paused_room_the_link_marks_the_entry_and_admits_no_visitor() -> None:
    event = busy()
    operations.set_state(event.id, "paused", who="boss")
    _, token = new_link(event)
    entry = vip_links.redeem_link(event, token, visitor())
    assert (entry.status, row(entry).marked) == ("waiting", "vip")
    operations.set_state(event.id, "open", who="boss")
    assert tick(event) == 1
    assert row(entry).status == "ready"


def test_a_refusal_gives_its_reason_and_does_not_use_the_link() -> None:
    event, other = busy(), make_room("opera")
    used, expired, revoked, foreign = new_link(event), new_link(event), new_link(event), new_link(other)
    vip_links.redeem_link(event, used[1], visitor())
    VipLink.objects.filter(pk=expired[0].pk).update(expires_at=clock.now())
    assert vip_links.revoke_link(revoked[0].pk, who="boss")
    assert not vip_links.revoke_link(revoked[0].pk, who="boss")
    before = QueueEntry.objects.count()
    queue_token = jwt.issue("queue", str(used[0].pk), timedelta(hours=1), event.slug)
    unknown = jwt.issue("vip", "00000000-0000-0000-0000-000000000000", timedelta(hours=1), event.slug)
    late = jwt.issue("vip", str(used[0].pk), timedelta(seconds=-5), event.slug)
    for token, reason in (
        (used[1], "used"), (expired[1], "expired"), (revoked[1], "revoked"), (foreign[1], "foreign"),
        (late, "expired"), (queue_token, "damaged"), (unknown, "damaged"), ("x", "damaged"), (used[1][:-3], "damaged"),
    ):  # fmt: skip
        with pytest.raises(LinkRefused, match=reason):
            vip_links.redeem_link(event, token, visitor())
    assert QueueEntry.objects.count() == before, "a refused visitor has not joined"
    with pytest.raises(ActRefused, match="has been used"):
        vip_links.revoke_link(used[0].pk, who="boss")
    operations.set_state(event.id, "drained", who="boss")
    drained = new_link(event)
    with pytest.raises(RoomDrained):
        vip_links.redeem_link(event, drained[1], visitor())
    assert vip_links.view_link(event, drained[1], visitor()).state == "open"


@pytest.mark.parametrize(
    "wrong", [{"hours": 0}, {"hours": vip_links.HOURS_MAX + 1}, {"note": "x" * 201}, {"note": "a\nb"}]
)
def test_an_invalid_duration_or_note_of_a_link_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ActRefused):
        vip_links.make_link(make_room().id, who="boss", **wrong)  # type: ignore[arg-type]


def test_the_longest_link_has_an_address_even_if_the_clock_of_the_process_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event = make_room()
    link = vip_links.make_link(event.id, who="boss", hours=vip_links.HOURS_MAX)
    behind = clock.process_now() - timedelta(seconds=5)
    with monkeypatch.context() as patched:
        patched.setattr(clock, "process_now", lambda: behind)
        token = vip_links.address_of(link, event.slug).rpartition("/")[2]
    assert vip_links.redeem_link(event, token, visitor()).is_ready


def use_concurrently(event: events.EventView, token: str, count: int) -> tuple[list[QueueEntry], list[BaseException]]:
    people = [visitor() for _ in range(count)]
    outcomes = storm(count, lambda number: vip_links.redeem_link(event, token, people[number]))
    return (
        list(QueueEntry.objects.exclude(marked="")),
        [outcome.error for outcome in outcomes if outcome.error is not None],
    )


@pytest.mark.django_db(transaction=True)
def test_of_eight_concurrent_uses_of_one_link_exactly_one_goes_ahead() -> None:
    """Each has read the link and found it unused; each then locks the room in turn: the first joins and writes its
    entry into the link, the others read it there and do not join."""
    event = busy(active=4, line=6)
    _, token = new_link(event)
    before = QueueEntry.objects.count()
    marked, errors = use_concurrently(event, token, 8)
    assert len(marked) == 1
    assert len(errors) == 7
    assert all(isinstance(error, LinkRefused) and str(error) == "used" for error in errors)
    assert VipLink.objects.get().entry_id == marked[0].pk
    assert QueueEntry.objects.count() == before + 1, "the others have not joined"
    assert_audit_clean()


@pytest.mark.django_db(transaction=True)
def test_in_a_presale_one_of_eight_concurrent_uses_joins_and_the_others_are_refused() -> None:
    event = make_room(active=8, presale=events.Presale("account", clock.now() + timedelta(hours=1)))
    _, token = new_link(event)
    outcomes = storm(8, lambda number: vip_links.redeem_link(event, token, visitor()))
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert [(type(error), str(error)) for error in errors] == [(LinkRefused, "used")] * 7
    assert QueueEntry.objects.get().pk == VipLink.objects.get().entry_id
    assert_audit_clean()


@pytest.mark.django_db(transaction=True)
def test_one_visitor_who_redeems_a_link_twice_at_once_gets_one_entry() -> None:
    event, ann = busy(), visitor()
    _, token = new_link(event)
    entries = values(storm(4, lambda _: vip_links.redeem_link(event, token, ann)))
    assert len({entry.id for entry in entries}) == 1


@pytest.mark.django_db(transaction=True)
def test_control_without_the_check_under_the_lock_several_go_ahead_by_one_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same eight, but each that found the link unused before the lock goes ahead regardless of what it reads under
    it."""
    event = busy(active=4, line=6)
    _, token = new_link(event)
    monkeypatch.setattr(vip_links, "_require_open", lambda link, now: None)
    marked, errors = use_concurrently(event, token, 8)
    assert not errors
    assert len(marked) == 8


def test_a_used_link_without_a_user_violates_a_constraint() -> None:
    link, _ = new_link(make_room())
    with pytest.raises(IntegrityError, match="vip_link_used_by_somebody"), transaction.atomic():
        VipLink.objects.filter(pk=link.pk).update(used_at=clock.now())


# --- the page ---------------------------------------------------------------------------------------------------------


def browser() -> Client:
    return Client(headers={"sec-fetch-site": "same-origin"})


def test_opening_a_link_does_not_use_it_and_one_click_does() -> None:
    event = busy()
    link, token = new_link(event)
    page = f"/events/concert/vip/{token}"
    for _ in range(3):
        shown = Client().get(page)
        assert shown.status_code == 200
        assert "Priority access" in shown.content.decode()
        assert "no-store" in shown.headers["Cache-Control"]
        assert not shown.cookies
    assert Client().head(page).status_code == 200
    link.refresh_from_db()
    assert link.used_at is None
    ann, bob = browser(), browser()
    first = ann.post(page)
    assert first.status_code == 307, "an identity before an entry"
    assert ann.post(first.url).url == "/events/concert/choose"
    assert ann.get("/events/concert/choose").status_code == 200
    assert "You have already used this link" in ann.get(page).content.decode()
    assert ann.post(page).url == "/events/concert/choose"
    refused = bob.post(page)
    assert (refused.status_code, "This link has been used" in refused.content.decode()) == (410, True)
    assert QueueEntry.objects.filter(marked="vip").count() == 1


def test_a_browser_that_keeps_no_cookie_gets_an_explanation() -> None:
    event = busy()
    _, token = new_link(event)
    first = Client(headers={"sec-fetch-site": "same-origin"}).post(f"/events/concert/vip/{token}")
    again = Client(headers={"sec-fetch-site": "same-origin"}).post(first.url)
    assert (again.status_code, "Cookies are blocked" in again.content.decode()) == (400, True)


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [("drained", 409, "The line is closed"), ("paused", 200, "Take my place")],
)
def test_the_page_shows_the_state_of_the_room(state: str, status: int, expected: str) -> None:
    event = busy()
    _, token = new_link(event)
    operations.set_state(event.id, state, who="boss")
    shown = Client().get(f"/events/concert/vip/{token}")
    assert (shown.status_code, expected in shown.content.decode()) == (status, True)


def test_before_the_on_sale_the_page_asks_to_keep_the_link() -> None:
    event = make_room(opens_at=clock.now() + timedelta(hours=1))
    link, token = new_link(event)
    ann = browser()
    shown = ann.post(ann.post(f"/events/concert/vip/{token}").url)
    assert (shown.status_code, "Keep this link" in shown.content.decode()) == (409, True)
    anonymous = Client().get(f"/events/concert/vip/{token}")
    assert (anonymous.status_code, "Keep this link" in anonymous.content.decode()) == (409, True), (
        "no button before the on-sale"
    )
    link.refresh_from_db()
    assert link.used_at is None


def test_after_the_sale_there_is_no_button() -> None:
    event = make_room()
    _, token = new_link(event)
    Event.objects.update(status=Event.Status.CANCELED)
    shown = Client().get(f"/events/concert/vip/{token}")
    assert (shown.status_code, "Sales have ended" in shown.content.decode()) == (409, True)


@pytest.mark.parametrize("token", ["x", "a.b.c", "%00", "x" * 2000, "é"])
@pytest.mark.parametrize("method", ["get", "post"])
def test_an_invalid_link_is_refused(token: str, method: str) -> None:
    make_room()
    response = getattr(browser(), method)(f"/events/concert/vip/{token}")
    assert response.status_code == 404
    assert "This link is not valid" in response.content.decode()
