"""The queue's answers and bodies, as the API description shows them."""

from typing import Any

from rest_framework import serializers

from apps.events import facade as events
from apps.kernel import clock
from apps.queue.entries import positions
from apps.queue.identity.caller import issue_admission_token, issue_queue_token
from apps.queue.status.status import QueueStatus

STATUSES = ["lobby", "waiting", "paused", "ready", "completed", "expired", "left", "drained"]
STAGES = ["lobby", "drawing"]


class JoinBody(serializers.Serializer):
    visitor_id = serializers.RegexField(
        r"^[A-Za-z0-9_-]{8,64}$",
        required=False,
        help_text="Random, kept by the client: one place per visitor. Without it, a cookie or a token: a new visitor.",
    )


class Place(serializers.Serializer):
    status = serializers.ChoiceField(choices=STATUSES)
    position_in_queue = serializers.IntegerField(allow_null=True, help_text="0 from ready on; null in the lobby.")
    number = serializers.IntegerField(
        required=False, help_text="While waiting: one's own; the position is this less `now_serving` of the updates."
    )
    estimated_wait_time = serializers.IntegerField(help_text="Seconds.")
    estimated_wait_range = serializers.ListField(
        child=serializers.IntegerField(), min_length=2, max_length=2, help_text="Seconds, from and to."
    )
    next_poll = serializers.IntegerField(help_text="Milliseconds until asking again is worth it.")
    tickets_left = serializers.IntegerField(
        required=False, allow_null=True, help_text="While waiting: what is free now; null: not known."
    )
    rate_per_second = serializers.FloatField(required=False, help_text="While waiting: how fast people are let in.")
    message = serializers.CharField(required=False, help_text="While waiting: the organiser's words to everybody.")
    stage = serializers.ChoiceField(choices=STAGES, required=False, help_text="In the lobby.")
    opens_at = serializers.DateTimeField(required=False, help_text="In the lobby: when places are drawn.")
    admission_token = serializers.CharField(required=False, help_text="In every answer while ready.")
    expires_at = serializers.DateTimeField(required=False, help_text="When ready: until then start a reservation.")


class JoinedPlace(Place):
    queue_token = serializers.CharField(required=False, help_text="Not for a signed-in user, who needs none.")


def status_answer(event: events.EventView, place: QueueStatus) -> dict[str, Any]:
    """Where somebody stands, as the contract shows it."""
    seen, entry = place.estimate, place.entry
    answer: dict[str, Any] = {
        "status": seen.status,
        "position_in_queue": seen.ahead,
    }
    if seen.number is not None:
        answer["number"] = seen.number
    answer |= {
        "estimated_wait_time": seen.wait_seconds,
        "estimated_wait_range": list(seen.wait_range),
        "next_poll": seen.ask_again_ms,
    }
    if place.waits:
        answer["tickets_left"] = seen.tickets_left
        answer["message"] = seen.message
        if seen.rate is not None:
            answer["rate_per_second"] = seen.rate
        if seen.stage:
            answer["stage"] = seen.stage
        if seen.opens_at is not None:
            answer["opens_at"] = clock.iso(seen.opens_at)
    if entry is not None and entry.is_ready and entry.admission_expires_at is not None:
        answer["admission_token"] = issue_admission_token(entry.id, event.slug, entry.number)
        answer["expires_at"] = clock.iso(entry.admission_expires_at)
    return answer


def encode_join_answer(event: events.EventView, said: bytes, entry: positions.EntryView) -> bytes:
    """`join_answer` as text, where the place's own is written already."""
    if entry.account_id is not None:
        return said
    return b'%b,"queue_token":"%b"}' % (said[:-1], issue_queue_token(entry.id, event.slug, entry.number).encode())


def join_answer(event: events.EventView, place: QueueStatus, entry: positions.EntryView) -> dict[str, Any]:
    """The same, with the queue token of a visitor who has no account to be known by."""
    answer = status_answer(event, place)
    if entry.account_id is None:
        answer["queue_token"] = issue_queue_token(entry.id, event.slug, entry.number)
    return answer
