"""The staff page of one room: its state, its acts, permissions, and refusals."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from apps.accounts.models import User
from apps.events import facade as events
from apps.kernel import clock
from apps.queue import facade
from apps.queue.entries import vip_links
from apps.queue.models import QueueEntry, RateChange, RoomAct, VipLink, WaitingRoom
from apps.queue.room import operations
from tests.support.queue.rooms import join_waiting_entries, make_room
from tests.support.races import rival_at


@pytest.fixture
def event(db: None) -> events.EventView:
    made = make_room(active=2, general_admission=20)
    join_waiting_entries(made, 4)
    return made


def staff_client(*permissions: str) -> Client:
    user = User.objects.create_user(f"with {len(permissions)}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client(headers={"sec-fetch-site": "same-origin"})
    client.force_login(user)
    return client


@pytest.fixture
def boss(event: events.EventView) -> Client:
    client = Client(headers={"sec-fetch-site": "same-origin"})
    client.force_login(User.objects.create_superuser("boss"))
    return client


def act(client: Client, event: events.EventView, action: str, **form: str) -> Any:
    return client.post(
        f"/admin/queue/waitingroom/{event.id}/act/", {"action": action, "why": "a test", **form}, follow=True
    )


def test_the_page_shows_the_state_of_the_room(boss: Client, event: events.EventView) -> None:
    operations.admit_now(event.id, 1, who="boss", why="<i>early</i>")
    WaitingRoom.objects.update(rate_now=1.5, supply_available=12, supply_held=3, message="<b>hi</b>")
    shown = boss.get(f"/admin/queue/waitingroom/{event.id}/change/").content.decode()
    for words in (
        "1 of 2", "1 of 4", "1.5/s", "Below the configured 10/s", "12 available, 3 reserved",
        "/events/concert/fairness", "&lt;b&gt;hi&lt;/b&gt;", "admitted manually: 1 of 1", "&lt;i&gt;early&lt;/i&gt;",
    ):  # fmt: skip
        assert words in shown
    assert "<b>hi</b>" not in shown


def test_the_page_shows_how_the_rate_changed_and_why(boss: Client, event: events.EventView) -> None:
    page = f"/admin/queue/waitingroom/{event.id}/change/"
    shown = boss.get(page).content.decode()
    assert "No rate changes." in shown
    assert "It is never reduced below 1/s, a tenth" in shown
    for to_rate in range(1, 11):
        RateChange.objects.create(
            event_id=event.id, at=clock.now(), from_rate=10, to_rate=to_rate / 4, reason=f"<i>slow</i> {to_rate}."
        )
    WaitingRoom.objects.update(rate_now=2.5, rate_floor=2)
    shown = boss.get(page).content.decode()
    for words in ("&lt;i&gt;slow&lt;/i&gt; 10.", "→ 2.5/s</td>", "It is never reduced below 2/s"):
        assert words in shown
    assert "slow&lt;/i&gt; 2." not in shown, "the last few, not all"
    listed = boss.get(f"/admin/queue/ratechange/?event__id__exact={event.id}").content.decode()
    assert "&lt;i&gt;slow&lt;/i&gt; 1." in listed
    assert boss.get("/admin/queue/ratechange/add/").status_code == 403
    assert "2.5" in boss.get("/admin/queue/waitingroom/").content.decode()


def test_the_floor_is_set_on_the_page_and_an_invalid_one_is_refused_beside_its_field(
    boss: Client, event: events.EventView
) -> None:
    page = f"/admin/queue/waitingroom/{event.id}/change/"
    right = {
        "rate_per_second": "10",
        "active_max": "2",
        "claim_seconds": "120",
        "admission_seconds": "300",
        "screening": "off",
    }
    WaitingRoom.objects.update(rate_now=2)
    for wrong in ("0", "11", "-1", "many", "9" * 30):
        shown = boss.post(page, right | {"rate_floor": wrong}, follow=True).content.decode()
        assert "was changed successfully" not in shown
        assert "errorlist" in shown
    assert WaitingRoom.objects.get().rate_floor is None
    boss.post(page, right | {"rate_floor": "5"})
    assert (WaitingRoom.objects.get().rate_floor, WaitingRoom.objects.get().rate_now) == (5, 5)
    boss.post(page, right | {"rate_floor": "5", "rate_per_second": "4"})
    assert WaitingRoom.objects.get().rate_per_second == 4, "a rate below the floor: it is never slowed down"
    boss.post(page, right | {"rate_floor": "", "rate_per_second": "4"})
    assert WaitingRoom.objects.get().rate_floor is None
    details = RoomAct.objects.filter(what="limits", refusal="").order_by("id").values_list("who", "detail")
    assert list(details) == [
        ("boss", "floor a tenth → 5/s"),
        ("boss", "10/s, 2 active → 4/s, 2 active"),
        ("boss", "floor 5/s → a tenth"),
    ]


def test_the_forms_save_in_their_own_transaction(transactional_db: None, boss: Client, event: events.EventView) -> None:
    """Django wraps a form in a transaction; the services refuse to join one. Only a test without a transaction around
    it can show that. A second operator's change between the form's check and the lock is reported, too."""
    page = f"/admin/queue/waitingroom/{event.id}/change/"
    form = {
        "active_max": "3",
        "claim_seconds": "120",
        "admission_seconds": "300",
        "screening": "off",
        "rate_floor": "5",
    }
    saved = boss.post(page, form | {"rate_per_second": "20"}, follow=True).content.decode()
    assert "was changed successfully" in saved
    room = WaitingRoom.objects.get()
    assert (room.rate_per_second, room.active_max, room.rate_floor) == (20, 3, 5)
    form |= {"rate_per_second": "20", "rate_floor": "15"}
    with rival_at("lock_rooms", "before", lambda: operations.set_limits(event.id, rate_per_second=10, who="another")):
        shown = boss.post(page, form, follow=True).content.decode()
    assert "The floor must be between 1 and the rate, 10" in shown
    assert "was changed successfully" not in shown
    assert RoomAct.objects.exclude(refusal="").get().refusal == "the floor must be between 1 and the rate, 10"
    assert WaitingRoom.objects.get().rate_floor == 5
    made = boss.post("/admin/queue/viplink/add/", {"event": str(event.id), "note": "", "hours": "3"}, follow=True)
    assert "/events/concert/vip/" in made.content.decode()


def test_every_act_of_the_page_is_done_reported_and_recorded(boss: Client, event: events.EventView) -> None:
    for action, form, expected in (
        ("pause", {}, "The room is paused"),
        ("message", {"message": "Back at 8."}, "Waiting visitors now see the message"),
        ("admit_now", {"count": "1"}, "1 visitor admitted"),
        ("let_through", {"whom": "4"}, "4 is admitted"),
        ("remove", {"whom": "3"}, "3 was removed"),
        ("clear_message", {"message": "Back at 8."}, "The message was removed"),
        ("resume", {}, "The room is open"),
    ):
        assert expected in act(boss, event, action, **form).content.decode()
    acts = [(row.what, row.who, row.why) for row in RoomAct.objects.order_by("id")]
    assert acts == [
        (what, "boss", "a test") for what in ("state", "message", "admit", "let in", "remove", "message", "state")
    ]


@pytest.mark.parametrize(("action", "state"), [("drain", "drained"), ("switch_off", "off")])
def test_destructive_acts_ask_for_confirmation_and_keep_their_reason(
    boss: Client, event: events.EventView, action: str, state: str
) -> None:
    confirmation = act(boss, event, action).content.decode()
    assert "4 waiting now" in confirmation
    assert 'name="why" value="a test"' in confirmation
    assert WaitingRoom.objects.get().state == "open"
    act(boss, event, action, confirmed="yes")
    assert WaitingRoom.objects.get().state == state
    assert RoomAct.objects.get(what="state").why == "a test"


@pytest.mark.parametrize(
    ("action", "form", "expected"),
    [
        ("", {}, "Choose an action"),
        ("dance", {}, "Choose an action"),
        ("admit_now", {"count": "many"}, "Enter how many"),
        ("admit_now", {"count": "0"}, "Admit between"),
        ("message", {"message": "x" * 300}, "at most 280"),
        ("let_through", {"whom": "99"}, "There is no entry"),
        ("remove", {"whom": ""}, "neither a queue number"),
    ],
)
def test_a_refusal_is_shown_and_nothing_changes(
    boss: Client, event: events.EventView, action: str, form: dict[str, str], expected: str
) -> None:
    shown = act(boss, event, action, **form).content.decode()
    assert expected in shown
    assert 'class="success"' not in shown
    acts = [(row.who, row.detail, row.why) for row in RoomAct.objects.all()]
    assert acts == ([("boss", f"{action} {form.get('whom', form.get('count', ''))}".strip(), "a test")] if form else [])
    assert all(expected.lower() in row.refusal for row in RoomAct.objects.all())


def test_refused_limits_are_shown_beside_their_field_and_not_as_changed(boss: Client, event: events.EventView) -> None:
    page = f"/admin/queue/waitingroom/{event.id}/change/"
    wrong = {
        "rate_per_second": "200000",
        "active_max": "2",
        "claim_seconds": "120",
        "admission_seconds": "300",
        "screening": "off",
    }
    shown = boss.post(page, wrong, follow=True).content.decode()
    assert "The rate must be between 1 and 100000" in shown
    assert "was changed successfully" not in shown
    assert WaitingRoom.objects.get().rate_per_second == 10
    assert (
        "was changed successfully" in boss.post(page, wrong | {"rate_per_second": "20"}, follow=True).content.decode()
    )
    assert WaitingRoom.objects.get().rate_per_second == 20
    act = RoomAct.objects.exclude(refusal="").get()
    assert (act.who, act.what, act.detail) == ("boss", "limits", "rate_per_second 200000")
    assert act.refusal == "the rate must be between 1 and 100000"


def test_a_user_who_may_only_view_changes_nothing(event: events.EventView) -> None:
    viewer = staff_client("view_waitingroom", "view_viplink")
    link = vip_links.make_link(event.id, who="boss")
    shown = viewer.get(f"/admin/queue/waitingroom/{event.id}/change/").content.decode()
    assert "<h2>Actions</h2>" not in shown
    assert act(viewer, event, "pause").status_code == 403
    assert viewer.get("/admin/queue/viplink/add/").status_code == 403
    assert "/vip/" not in viewer.get(f"/admin/queue/viplink/{link.pk}/change/").content.decode()
    assert WaitingRoom.objects.get().state == "open"


def test_a_user_who_may_run_the_room_needs_permission_to_let_visitors_through_or_remove_them(
    event: events.EventView,
) -> None:
    client = staff_client("view_waitingroom", "change_waitingroom", "view_queueentry")
    assert "The room is paused" in act(client, event, "pause").content.decode()
    for action in ("let_through", "remove"):
        assert act(client, event, action, whom="4").status_code == 403
    assert set(QueueEntry.objects.values_list("status", flat=True)) == {"waiting"}


def test_an_unknown_room_is_not_found(boss: Client) -> None:
    assert boss.post("/admin/queue/waitingroom/999999/act/", {"action": "pause"}).status_code == 404
    assert boss.get("/admin/queue/waitingroom/999999/change/", follow=True).status_code == 200


def test_a_link_is_created_shown_and_withdrawn(boss: Client, event: events.EventView) -> None:
    form = {"event": str(event.id), "note": "Ann", "hours": "3"}
    wrong = boss.post("/admin/queue/viplink/add/", form | {"hours": "0"})
    assert (wrong.status_code, VipLink.objects.count()) == (200, 0)
    shown = boss.post("/admin/queue/viplink/add/", form, follow=True).content.decode()
    assert "/events/concert/vip/" in shown
    link = VipLink.objects.get()
    assert (link.note, link.created_by) == ("Ann", "boss")
    chosen = {"action": "revoke", "_selected_action": str(link.pk), "why": "she is ill"}
    assert "1 link revoked" in boss.post("/admin/queue/viplink/", chosen, follow=True).content.decode()
    assert "/events/concert/vip/" not in boss.get(f"/admin/queue/viplink/{link.pk}/change/").content.decode()
    assert [act.why for act in RoomAct.objects.filter(what="vip link").order_by("id")] == ["", "she is ill"]


def test_visitors_are_let_through_from_the_list_of_entries(boss: Client, event: events.EventView) -> None:
    last = QueueEntry.objects.order_by("-number").first()
    assert last is not None
    chosen = {"action": "let_through", "_selected_action": str(last.pk), "why": "the drummer"}
    for expected in ("Number 4: admitted.", "is admitted already"):
        assert expected in boss.post("/admin/queue/queueentry/", chosen, follow=True).content.decode()
    assert [(act.what, act.refusal, act.why) for act in RoomAct.objects.order_by("id")] == [
        ("let in", "", "the drummer"),
        ("let in", "this visitor is admitted already", "the drummer"),
    ]
    view = facade.entry_by_id(last.pk)
    assert view is not None
    assert view.is_ready
