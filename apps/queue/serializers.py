"""The queue's responses and request bodies, for the OpenAPI document and for rendering."""

from typing import Any

from rest_framework import serializers

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.proof_of_work.challenges import PAYLOAD_LENGTH_MAX
from apps.queue.entries import positions
from apps.queue.identity.caller import Caller, issue_admission_token, issue_queue_token
from apps.queue.status.status import QueueStatus

STATUSES = ["lobby", "waiting", "review", "paused", "ready", "completed", "expired", "left", "drained"]
STAGES = ["lobby", "drawing"]


class JoinBody(serializers.Serializer):
    visitor_id = serializers.RegexField(
        r"^[A-Za-z0-9_-]{8,64}$",
        required=False,
        allow_null=True,
        help_text="A random id kept by the client. Without an id, a cookie or a token, a new visitor joins.",
    )
    access_code = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, help_text="During a presale by access code."
    )
    proof = serializers.CharField(
        required=False,
        allow_null=True,
        max_length=PAYLOAD_LENGTH_MAX,
        help_text="The solution of the challenge of a `work-required` refusal: Altcha's payload, in Base64.",
    )


class Place(serializers.Serializer):
    status = serializers.ChoiceField(choices=STATUSES)
    position_in_queue = serializers.IntegerField(allow_null=True, help_text="0 once admitted; null in the lobby.")
    number = serializers.IntegerField(
        required=False,
        help_text="While waiting: the visitor's number; the position is this minus `now_serving` of the updates.",
    )
    estimated_wait_time = serializers.IntegerField(help_text="Seconds.")
    estimated_wait_range = serializers.ListField(
        child=serializers.IntegerField(), min_length=2, max_length=2, help_text="Seconds: minimum and maximum."
    )
    next_poll = serializers.IntegerField(help_text="Milliseconds until the next poll.")
    tickets_left = serializers.IntegerField(
        required=False, allow_null=True, help_text="While waiting: free tickets now; null: unknown."
    )
    rate_per_second = serializers.FloatField(required=False, help_text="While waiting: visitors admitted per second.")
    message = serializers.CharField(required=False, help_text="While waiting: the organizer's message.")
    stage = serializers.ChoiceField(choices=STAGES, required=False, help_text="In the lobby.")
    opens_at = serializers.DateTimeField(required=False, help_text="In the lobby: when the draw begins.")
    admission_token = serializers.CharField(required=False, help_text="In every response while ready.")
    expires_at = serializers.DateTimeField(
        required=False, help_text="While ready: a reservation must be started before."
    )


class JoinedPlace(Place):
    queue_token = serializers.CharField(required=False, help_text="Absent for signed-in users, who need none.")


def status_answer(event: events.EventView, place: QueueStatus, caller: Caller) -> dict[str, Any]:
    """Return the response for the caller's status in the queue."""
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
        answer["admission_token"] = issue_admission_token(entry.id, event.slug, entry.number, caller.account_version)
        answer["expires_at"] = clock.iso(entry.admission_expires_at)
    return answer


def encode_join_answer(event: events.EventView, status: bytes, entry: positions.EntryView) -> bytes:
    """Return `join_answer` in JSON, given the encoded status."""
    if entry.account_id is not None:
        return status
    return b'%b,"queue_token":"%b"}' % (status[:-1], issue_queue_token(entry.id, event.slug, entry.number).encode())


def join_answer(
    event: events.EventView, place: QueueStatus, entry: positions.EntryView, caller: Caller
) -> dict[str, Any]:
    """Return the status response with a queue token, for a visitor without an account."""
    answer = status_answer(event, place, caller)
    if entry.account_id is None:
        answer["queue_token"] = issue_queue_token(entry.id, event.slug, entry.number)
    return answer
