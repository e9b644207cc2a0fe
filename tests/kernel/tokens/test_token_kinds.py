"""Every kind of token at every address that takes one: the status, and the problem type."""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from apps.accounts.models import User
from apps.accounts.tokens.account_tokens import AccessToken, RefreshToken
from apps.events import facade as events
from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.tokens import jwt
from apps.queue import facade as queue
from apps.queue.identity.caller import issue_admission_token, issue_queue_token
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room import operations
from tests.support import factories
from tests.support.api_client import Api, assert_problem
from tests.support.queue.rooms import complete_admission, make_room, open_now

HOUR = timedelta(hours=1)
ADDRESSES = ("status", "join", "leave", "hold", "seats", "another's")


def _join(event: events.EventView) -> queue.EntryView:
    return factories.join(event)


def _queue_token(event: events.EventView, entry: queue.EntryView) -> str:
    return issue_queue_token(entry.id, event.slug, entry.number)


def _waiting(event: events.EventView) -> str:
    WaitingRoom.objects.filter(event_id=event.id).update(state="paused")
    return _queue_token(event, _join(event))


def _missed(event: events.EventView) -> str:
    """The admission was lost, the position was not: polling the status returns the entry to the queue."""
    entry = _join(event)
    WaitingRoom.objects.filter(event_id=event.id).update(state="paused")
    QueueEntry.objects.filter(pk=entry.id).update(
        status="away", admission_expires_at=None, claim_expires_at=clock.now() - timedelta(seconds=1)
    )
    return _queue_token(event, entry)


def _ended(event: events.EventView, end: Callable[[queue.EntryView], Any]) -> str:
    entry = _join(event)
    end(entry)
    return _queue_token(event, entry)


def _left(entry: queue.EntryView) -> None:
    QueueEntry.objects.filter(pk=entry.id).update(status="left", ended_at=clock.now())


def _expired(entry: queue.EntryView) -> None:
    QueueEntry.objects.filter(pk=entry.id).update(admission_expires_at=clock.now() - timedelta(seconds=1))


def _foreign(event: events.EventView) -> str:
    opera = factories.make_event("opera")
    return _queue_token(opera, _join(opera))


def _forged(event: events.EventView) -> str:
    good = _queue_token(event, _join(event))
    return good[:-10] + good[-10:][::-1]


def _ann() -> User:
    return User.objects.create_user(f"{uuid.uuid4().hex}@example.org")


def _admission_of_completed(event: events.EventView) -> str:
    entry = _join(event)
    complete_admission(entry.id)
    return issue_admission_token(entry.id, event.slug, entry.number, None)


TOKENS: dict[str, Callable[[events.EventView], str]] = {
    "none": lambda event: "",
    "forged": _forged,
    "expired": lambda event: jwt.issue("queue", str(_join(event).id), -HOUR, event.slug),
    "of another event": _foreign,
    "of no event": lambda event: jwt.issue("queue", str(_join(event).id), HOUR),
    "of a malformed entry id": lambda event: jwt.issue("queue", "x", HOUR, event.slug),
    "of another kind": lambda event: jwt.issue("order", str(_join(event).id), HOUR, event.slug),
    "a place cookie": lambda event: jwt.issue("place", str(_join(event).id), HOUR, event.slug, num=1),
    "a refresh token": lambda event: str(RefreshToken.for_user(_ann())),
    "of an entry that never existed": lambda event: jwt.issue("queue", str(uuid.uuid4()), HOUR, event.slug),
    "an account without an entry": lambda event: str(AccessToken.for_user(_ann())),
    "waiting": _waiting,
    "missed its turn": _missed,
    "ready": lambda event: _queue_token(event, _join(event)),
    "left": lambda event: _ended(event, _left),
    "removed": lambda event: _ended(event, lambda entry: operations.remove(entry.id, who="staff")),
    "completed": lambda event: _ended(event, lambda entry: complete_admission(entry.id)),
    "admission, completed": _admission_of_completed,
    "admission expired": lambda event: _ended(event, _expired),
}
MISSING, INVALID, EXPIRED = (401, "token-missing"), (401, "token-invalid"), (401, "token-expired")
WRONG_EVENT, NOT_OWNER, NO_ENTRY = (403, "token-wrong-event"), (403, "not-owner"), (404, "not-found")
NOT_ADMITTED, OVER = (429, "not-admitted"), (410, "admission-expired")
ENDED = [(200, ""), (201, ""), (200, ""), OVER, OVER, NOT_OWNER]
EXPECTED: dict[str, list[tuple[int, str]]] = {
    "none": [MISSING, (201, ""), MISSING, MISSING, MISSING, MISSING],
    "forged": [INVALID] * 6,
    "expired": [EXPIRED] * 6,
    "of another event": [WRONG_EVENT] * 6,
    "of no event": [WRONG_EVENT] * 5 + [NOT_OWNER],
    "of a malformed entry id": [INVALID] * 6,
    "of another kind": [INVALID] * 6,
    "a place cookie": [INVALID] * 6,
    "a refresh token": [INVALID] * 6,
    "of an entry that never existed": [NO_ENTRY, INVALID, NO_ENTRY, NOT_ADMITTED, NOT_ADMITTED, NOT_OWNER],
    "an account without an entry": [NO_ENTRY, (201, ""), NO_ENTRY, NOT_ADMITTED, NOT_ADMITTED, NOT_OWNER],
    "waiting": [(200, ""), (201, ""), (200, ""), NOT_ADMITTED, NOT_ADMITTED, NOT_OWNER],
    "missed its turn": [(200, ""), (201, ""), (200, ""), NOT_ADMITTED, NOT_ADMITTED, NOT_OWNER],
    "ready": [(200, ""), (201, ""), (200, ""), (201, ""), (200, ""), NOT_OWNER],
    "left": ENDED,
    "removed": ENDED,
    "completed": ENDED,
    "admission, completed": ENDED,
    "admission expired": ENDED,
}


def call(api: Api, address: str, token: str, reservation: uuid.UUID) -> Any:
    event_url = "/events/concert"
    if address == "status":
        return api.get(f"{event_url}/queue/status", token=token)
    if address == "join":
        return api.post(f"{event_url}/queue", token=token)
    if address == "leave":
        return api.delete(f"{event_url}/queue", token=token)
    if address == "hold":
        return api.post(f"{event_url}/reservations", {"seats": ["hall-A-1"]}, token=token, key="k")
    if address == "seats":
        return api.get(f"{event_url}/sections/hall/seats", token=token)
    return api.get(f"/reservations/{reservation}", token=token)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", TOKENS)
def test_each_kind_of_token_at_every_address(api: Api, kind: str) -> None:
    """One event per address: a change by one call (an entry left, a seat held) must not affect the next."""
    got = []
    for number, address in enumerate(ADDRESSES):
        event = make_room("concert", active=10)
        open_now(event)
        held = factories.hold(event, seats=["hall-B-1"])
        token = TOKENS[kind](event)
        response = call(api, address, token, held.id)
        status, problem = response.status_code, ""
        if status >= 400:
            problem = response.json()["type"]
            assert_problem(response, status, problem)
        got.append((status, problem))
        factories.assert_audit_clean()
        for one in Event.objects.filter(slug__in=("concert", "opera")):
            Event.objects.filter(pk=one.pk).update(slug=f"{one.slug}-{number}")
    assert dict(zip(ADDRESSES, got, strict=True)) == dict(zip(ADDRESSES, EXPECTED[kind], strict=True))
