"""The waiting page: it shows the position, and leads to the sale at the visitor's turn."""

import re

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.events import facade as events
from apps.events.models import OnSale
from apps.kernel import clock
from apps.kernel.fastpath import cache
from apps.queue.models import QueueEntry, RoomAct, WaitingRoom
from apps.queue.room import operations
from tests.support import factories
from tests.support.queue.rooms import make_room

WAIT, CHOOSE = "/events/concert/wait", "/events/concert/choose"


@pytest.fixture
def room(db: None) -> events.EventView:
    """An open room with three slots, all of them taken."""
    event = make_room(general_admission=20)
    for _ in range(3):
        factories.join(event)
    return event


@pytest.fixture
def waiting(browser: Client, room: events.EventView) -> Client:
    first = browser.post("/events/concert/join")
    second = browser.post(first.url)
    assert (second.status_code, second.url) == (303, WAIT)
    return browser


def own_entry() -> QueueEntry:
    return QueueEntry.objects.order_by("-number").first()  # type: ignore[return-value]


def test_a_waiting_visitor_sees_the_position(waiting: Client) -> None:
    page = waiting.get(WAIT)
    text = page.content.decode()
    assert page.status_code == 200
    assert "no-store" in page.headers["Cache-Control"]
    assert "data-line-position>1<" in text
    assert re.search(r"data-line-pace>\d+ (person|people) an? (minute|hour)<", text)
    assert 'src="/events/concert/poster.svg"' in text
    assert re.search(r"data-line-wait>[A-Z][^<]+\.</p>", text)
    assert '<noscript><meta http-equiv="refresh"' in text
    assert 'role="status" aria-live="polite"' in text
    assert "/api/events/concert/queue/status" in text


def test_choosing_leads_back_to_the_waiting_page_while_the_visitor_waits(waiting: Client) -> None:
    for response in (waiting.get(CHOOSE), waiting.post(CHOOSE, {"view": "best"})):
        assert (response.status_code, response.url) == (303, WAIT)


def test_at_the_turn_the_page_leads_straight_to_choosing(waiting: Client, room: events.EventView) -> None:
    WaitingRoom.objects.update(active_max=4, ticked_at=None)
    assert operations.admit_now(room.id, 1, who="staff") == 1
    assert own_entry().admission_expires_at is None
    response = waiting.get(WAIT)
    assert (response.status_code, response.url) == (302, CHOOSE)
    assert own_entry().admission_expires_at is not None
    assert waiting.get(CHOOSE).status_code == 200


def test_a_pause_is_shown(waiting: Client) -> None:
    WaitingRoom.objects.update(state="paused")
    assert "Your place is saved" in waiting.get(WAIT).content.decode()


def test_no_estimate_is_shown_while_nothing_is_left_to_buy(waiting: Client) -> None:
    WaitingRoom.objects.update(supply_available=0, supply_held=4)
    text = waiting.get(WAIT).content.decode()
    assert "Less than a minute" not in text
    assert "No wait estimate yet" in text
    assert "Unpaid tickets go back on sale" in text


def test_a_drained_room_informs_waiting_visitors_and_refuses_others(waiting: Client) -> None:
    WaitingRoom.objects.update(state="drained", supply_available=0, supply_held=0)
    text = waiting.get(WAIT).content.decode()
    assert "Sold out" in text
    assert "wait.js" in text, "if the room opens again, the page continues by itself"
    other = Client(headers={"sec-fetch-site": "same-origin"})
    refused = other.post(other.post("/events/concert/join").url)
    assert refused.status_code == 409
    assert "Sold out" in refused.content.decode()
    assert "wait.js" not in refused.content.decode()
    WaitingRoom.objects.update(supply_available=7, supply_held=0)
    cache.clear_all()
    for text in (waiting.get(WAIT).content.decode(), other.post("/events/concert/join").content.decode()):
        assert "The line is closed" in text, "free tickets are not called sold"
        assert "Join the line again" not in text
    OnSale.objects.update(closes_at=clock.now())
    assert "Sales have ended" in waiting.get(WAIT).content.decode()


def test_leaving_is_one_click_and_joining_again_another(waiting: Client) -> None:
    left = waiting.post("/events/concert/leave")
    assert (left.status_code, left.url) == (303, WAIT)
    assert "You left the line" in waiting.get(WAIT).content.decode()
    assert own_entry().status == "left"
    assert waiting.post("/events/concert/join").url == WAIT
    assert own_entry().number == 5


def test_a_turn_that_is_over_is_shown(waiting: Client) -> None:
    QueueEntry.objects.filter(pk=own_entry().pk).update(
        status="ready", ready_at=clock.now(), admission_expires_at=clock.now()
    )
    assert "Your turn has expired" in waiting.get(WAIT).content.decode()


@pytest.mark.parametrize("method", ["get", "post"])
def test_a_visitor_who_is_not_in_line_is_redirected_to_the_event(
    browser: Client, room: events.EventView, method: str
) -> None:
    if method == "get":
        assert browser.get(WAIT).url == "/events/concert/"
    else:
        assert browser.post("/events/concert/leave").url == "/events/concert/"


def test_a_leave_from_another_site_is_refused(waiting: Client) -> None:
    assert waiting.post("/events/concert/leave", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert own_entry().status == "waiting"


def test_staff_acts_are_recorded(waiting: Client, room: events.EventView) -> None:
    staff = Client(headers={"sec-fetch-site": "same-origin"})
    staff.force_login(User.objects.create_superuser("boss"))
    admin_url = "/admin/queue/waitingroom/"

    def act(action: str, **more: str) -> str:
        form = {"action": action, "_selected_action": str(room.id), **more}
        return staff.post(admin_url, form, follow=True).content.decode()

    act("pause", why="the till is down")
    assert WaitingRoom.objects.get().state == "paused"
    assert "enter how many" in act("admit_now")
    assert ": 0 admitted." in act("admit_now", count="5")
    changed = staff.post(
        f"{admin_url}{room.id}/change/",
        {
            "rate_per_second": "20",
            "active_max": "4",
            "claim_seconds": "120",
            "admission_seconds": "200",
            "screening": "off",
        },
    )
    assert changed.status_code == 302
    assert ": 1 admitted." in act("admit_now", count="5")
    assert "cannot become" not in act("resume")
    assert "all waiting visitors see that the line is closed" in act("drain", why="sold at the door")
    assert WaitingRoom.objects.get().state == "open"
    assert "drained" in act("drain", why="sold at the door", confirmed="yes")
    standing = WaitingRoom.objects.get()
    assert (standing.rate_per_second, standing.admission_seconds, standing.state) == (20, 200, "drained")
    acts = [(act.who, act.what, act.detail, act.why) for act in RoomAct.objects.order_by("id")]
    assert acts[1:] == [
        ("boss", "state", "open → paused", "the till is down"),
        ("boss", "admit", "admit_now Concert", ""),
        ("boss", "admit", "0 of 5", ""),
        ("boss", "limits", "10/s, 3 active → 20/s, 4 active; 120 s to claim, 200 s to start", ""),
        ("boss", "admit", "1 of 5", ""),
        ("boss", "state", "paused → open", ""),
        ("boss", "state", "open → drained", "sold at the door"),
    ]
    for page in ("roomact", "admissionbatch"):
        assert staff.get(f"/admin/queue/{page}/").status_code == 200


def test_staff_remove_a_visitor(waiting: Client) -> None:
    staff = Client(headers={"sec-fetch-site": "same-origin"})
    staff.force_login(User.objects.create_superuser("boss"))
    form = {"action": "remove", "_selected_action": str(own_entry().pk), "why": "a script"}
    staff.post("/admin/queue/queueentry/", form, follow=True)
    assert own_entry().status == "left"
    assert RoomAct.objects.get(what="remove").why == "a script"
    assert "You were removed from the line" in waiting.get(WAIT).content.decode()
