"""Entries in review keep their number and are not admitted; their visitors see that. Later they return to the line."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from apps.accounts.models import User
from apps.events.facade import EventView
from apps.events.models import OnSale
from apps.kernel import clock
from apps.queue import facade
from apps.queue.entries import positions
from apps.queue.errors import ActRefused
from apps.queue.identity import guest_merge
from apps.queue.identity.caller import visitor_id_of_secret
from apps.queue.models import QueueEntry, RoomAct, WaitingRoom
from apps.queue.room import operations
from apps.queue.screening import review
from apps.queue.screening import score as signals
from apps.queue.screening import screen as screening
from apps.queue.screening.policy import Policy, policies
from apps.queue.screening.result import UNSCREENED, Screening
from tests.support.api_client import Api
from tests.support.factories import assert_audit_clean, join
from tests.support.queue.lobbies import close_lobby, draw_all, make_lobby
from tests.support.queue.rooms import join_waiting_entries, make_room, open_now, row, statuses, tick
from tests.support.queue.work import solve

pytestmark = pytest.mark.django_db

SAME_ORIGIN = {"sec-fetch-site": "same-origin"}
BY = {"who": "ann", "why": "a school"}
SUSPECT = Screening(score=7, reasons="many joins from one address +4; many joins from one network +3", for_review=True)


@pytest.fixture
def event() -> EventView:
    event = make_room(rate=1_000, active=50, general_admission=1_000)
    open_now(event)
    return event


def join_for_review(event: EventView, name: str = "suspect") -> facade.EntryView:
    return positions.join(event, facade.Caller(visitor_id=f"visitor-{name}"), SUSPECT)


def test_an_entry_in_review_has_a_number_and_is_not_admitted(event: EventView) -> None:
    entry = join_for_review(event)
    later = join(event)
    tick(event)
    assert (entry.number, row(entry).status) == (1, "review")
    assert row(later).status == "ready", "it delays no other visitor"
    assert_audit_clean()


def test_the_organizer_sees_why(event: EventView) -> None:
    stored = row(join_for_review(event))
    assert (stored.score, stored.reasons) == (SUSPECT.score, SUSPECT.reasons)


def test_the_visitor_is_informed(api: Api, event: EventView) -> None:
    WaitingRoom.objects.update(screening="on", review_score=1)
    api.client.defaults["REMOTE_ADDR"] = "127.0.0.1"
    policies.clear()
    entry = positions.join(event, facade.Caller(visitor_id=visitor_id_of_secret("visitor-suspect")), SUSPECT)
    token = api.post("/events/concert/queue", {"visitor_id": "visitor-suspect"}).json()
    assert token["type"] == "work-required"
    answer = api.post(
        "/events/concert/queue", {"visitor_id": "visitor-suspect", "proof": solve(token["challenge"])}
    ).json()
    assert (answer["status"], answer["number"]) == ("review", entry.number)
    polled = api.get("/events/concert/queue/status", token=answer["queue_token"]).json()
    assert polled["status"] == "review"
    assert polled["next_poll"] >= 10_000


def test_polls_above_the_head_are_informed_too(api: Api, event: EventView) -> None:
    """Another process answers such polls from the room's snapshot; it learns of the review from PostgreSQL."""
    join_waiting_entries(event, 3)
    entry = join_for_review(event)
    token = facade_token(entry)
    assert api.get("/events/concert/queue/status", token=token).json()["status"] == "review"


def facade_token(entry: facade.EntryView) -> str:
    from apps.queue.identity.caller import issue_queue_token

    return issue_queue_token(entry.id, entry.event_slug, entry.number)


def test_a_review_that_ends_before_the_turn_keeps_the_number(event: EventView) -> None:
    join_waiting_entries(event, 2)
    WaitingRoom.objects.update(state="paused")
    entry = join_for_review(event)
    assert not review.end_review(entry.id, **BY)
    stored = row(entry)
    assert (stored.status, stored.number, stored.marked) == ("waiting", 3, "")
    assert_audit_clean()


def test_a_review_that_ends_after_the_turn_admits_first(event: EventView) -> None:
    entry = join_for_review(event)
    join(event)
    tick(event)
    assert review.end_review(entry.id, **BY)
    assert (row(entry).status, row(entry).marked) == ("ready", "operator")
    assert_audit_clean()


@pytest.mark.parametrize("act", [review.end_review, operations.let_through])
@pytest.mark.parametrize("state", ["open", "drained"])
def test_after_the_sale_no_entry_gets_priority(event: EventView, act: Callable[..., bool], state: str) -> None:
    """A published report has counted those that have it."""
    entry = join_for_review(event)
    join(event)
    tick(event)
    if state == "drained":
        operations.set_state(event.id, state, who="boss")
    else:
        OnSale.objects.update(closes_at=clock.now())
    with pytest.raises(ActRefused, match="drained" if state == "drained" else "has ended"):
        act(entry.id, **BY)
    assert (row(entry).status, row(entry).marked) == ("review", "")
    assert_audit_clean()


def test_the_end_of_a_review_is_recorded(event: EventView) -> None:
    entry = join_for_review(event)
    review.end_review(entry.id, **BY)
    act = RoomAct.objects.get(what="review")
    assert (act.who, act.why, act.detail) == ("ann", "a school", "number 1")
    with pytest.raises(ActRefused):
        review.end_review(entry.id, **BY)


def test_an_entry_in_review_cannot_hold(event: EventView) -> None:
    entry = join_for_review(event)
    assert entry.waits
    with pytest.raises(facade.NotAdmitted):
        facade.require_entry(event.id, entry)


def test_a_visitor_in_review_can_leave_and_has_one_entry(event: EventView) -> None:
    entry = join_for_review(event)
    assert join_for_review(event).id == entry.id
    positions.leave(event, facade.Caller(visitor_id="visitor-suspect"))
    assert statuses(event) == ["left"]


def test_a_log_in_does_not_end_a_review(event: EventView) -> None:
    join_for_review(event)
    user = User.objects.create_user("ann@example.org")
    assert guest_merge.merge_entries(event.id, "visitor-suspect", user.pk)
    assert QueueEntry.objects.get().status == "review"


def test_an_ordinary_entry_is_better_than_one_in_review(event: EventView) -> None:
    join_for_review(event)
    WaitingRoom.objects.update(state="paused")
    user = User.objects.create_user("ann@example.org")
    own = join(event, account_id=user.pk)
    assert guest_merge.merge_entries(event.id, "visitor-suspect", user.pk)
    assert (row(own).status, statuses(event)) == ("waiting", ["left", "waiting"])


def test_priority_by_an_operator_ends_a_review(event: EventView) -> None:
    entry = join_for_review(event)
    assert operations.let_through(entry.id, **BY)
    assert row(entry).status == "ready"


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize(
    ("screening", "status"),
    [(SUSPECT, "review"), (Screening(score=1), "review"), (UNSCREENED, "waiting")],
    ids=["the same signals", "from another network", "approved by staff"],
)
def test_leaving_and_joining_again_in_a_lobby_ends_no_review(
    is_removed: bool, screening: Screening, status: str
) -> None:
    """Nor does it undo that staff have removed the entry. A join that staff approve (a VIP link) is not reviewed."""
    event, _ = make_lobby()
    WaitingRoom.objects.filter(event_id=event.id).update(review_score=SUSPECT.score)
    caller, entry = facade.Caller(visitor_id="visitor-suspect"), join_for_review(event)
    if is_removed:
        operations.remove(entry.id, **BY)
    else:
        positions.leave(event, caller)
    assert positions.join(event, caller, screening).id == entry.id
    assert statuses(event) == [status]


@pytest.mark.django_db(transaction=True)
def test_a_lobby_entry_in_review_is_drawn_and_then_waits_for_the_review() -> None:
    event, _ = make_lobby(entrants=2, rate=1_000, active=50)
    entry = join_for_review(event)
    event = close_lobby(event)
    draw_all()
    tick(event)
    assert row(entry).number is not None
    assert sorted(statuses(event)) == ["ready", "ready", "review"]
    review.end_review(entry.id, **BY)
    tick(event)
    assert sorted(statuses(event)) == ["ready"] * 3
    assert_audit_clean()


def test_the_waiting_page_says_that_the_entry_is_in_review(browser: Client, event: EventView) -> None:
    browser.post("/events/concert/join")
    caller = facade.Caller(visitor_id=visitor_of(browser))
    positions.join(event, caller, SUSPECT)
    text = browser.get("/events/concert/wait").content.decode()
    assert "In review" in text
    assert 'data-status="review"' in text


def visitor_of(browser: Client) -> str:
    from django.core.signing import TimestampSigner

    return visitor_id_of_secret(TimestampSigner(salt="visitor").unsign(browser.cookies["visitor"].value))


def test_the_room_decides_from_which_score_on_joins_are_reviewed(
    event: EventView, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PROOF_OF_WORK_STEPS = 2
    monkeypatch.setattr(signals, "FAST_SECONDS", 3_600)
    caller = facade.Caller(account_id=1, account_since=None)

    def screened(policy: Policy) -> Screening:
        proof = solve(screening.create_challenge(event, caller, "203.0.113.9"))
        return screening.screen(event, policy, caller, "203.0.113.9", proof=proof)

    assert screened(Policy("on", review_score=1)).for_review, "it answered faster than a page can"
    assert not screened(Policy("on", review_score=2)).for_review
    assert not screened(Policy("on")).for_review


# --- settings of a room -----------------------------------------------------------------------------------------------


def test_a_change_is_recorded(event: EventView) -> None:
    assert review.set_screening(event.id, when="on", review_score=5, **BY)
    assert not review.set_screening(event.id, when="on", review_score=5, **BY)
    room = WaitingRoom.objects.get()
    assert (room.screening, room.review_score) == ("on", 5)
    act = RoomAct.objects.get(what="screening")
    assert act.detail == "proof of work off, no review → proof of work on, review from score 5"
    assert review.set_screening(event.id, review_score=0, **BY)
    assert WaitingRoom.objects.get().review_score is None


@pytest.mark.parametrize("wanted", [{"when": "sometimes"}, {"review_score": 101}, {"review_score": -1}])
def test_an_invalid_setting_is_refused(event: EventView, wanted: dict[str, Any]) -> None:
    with pytest.raises(ActRefused):
        review.set_screening(event.id, **wanted, **BY)
    assert not RoomAct.objects.filter(what="screening").exists()


def test_new_rooms_have_the_setting_of_the_deployment(settings: Any, db: None) -> None:
    settings.PROOF_OF_WORK_JOIN = "pressure"
    make_room("later")
    assert WaitingRoom.objects.get().screening == "pressure"


def test_the_command_sets_and_shows_screening(event: EventView, capsys: Any) -> None:
    call_command("room", "concert", "screening", "on", "--review-from", "5")
    assert capsys.readouterr().out == "concert: proof of work on, review from score 5\n"
    entry = join_for_review(event)
    call_command("room", "concert", "show")
    assert "screening  proof of work on, review from score 5; 1 in review" in capsys.readouterr().out
    call_command("room", "concert", "end-review", str(entry.number), "--why", "a school")
    assert row(entry).status != "review"
    call_command("room", "concert", "screening", "--review-from", "never")
    assert WaitingRoom.objects.get().review_score is None


@pytest.mark.parametrize(
    "options", [[], ["--review-from", "0"], ["--review-from", "x"], ["on", "--review-from", "101"]]
)
def test_the_command_refuses_what_makes_no_sense(event: EventView, options: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("room", "concert", "screening", *options)


def test_the_admin_shows_the_reasons_and_ends_reviews(admin_client: Client, event: EventView) -> None:
    entry = join_for_review(event)
    listed = admin_client.get("/admin/queue/queueentry/?status__exact=review").content.decode()
    assert SUSPECT.reasons.split(";")[0] in listed
    room_page = admin_client.get(f"/admin/queue/waitingroom/{event.id}/change/").content.decode()
    assert "1 in review" in room_page
    form = {"action": "end_review", "_selected_action": [str(entry.id)], "why": "a school"}
    admin_client.post("/admin/queue/queueentry/", form, headers=SAME_ORIGIN)
    assert row(entry).status != "review"
    assert RoomAct.objects.get(what="review").why == "a school"


def test_the_admin_changes_screening_with_a_record(admin_client: Client, event: EventView) -> None:
    room = WaitingRoom.objects.get()
    form = {
        "rate_per_second": room.rate_per_second, "rate_floor": "", "active_max": room.active_max,
        "claim_seconds": room.claim_seconds, "admission_seconds": room.admission_seconds,
        "screening": "pressure", "review_score": "6",
    }  # fmt: skip
    admin_client.post(f"/admin/queue/waitingroom/{event.id}/change/", form, headers=SAME_ORIGIN)
    room.refresh_from_db()
    assert (room.screening, room.review_score) == ("pressure", 6)
    assert RoomAct.objects.filter(what="screening").count() == 1
