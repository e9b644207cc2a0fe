"""The fairness page, where anyone can check an event's queue."""

import json
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_cache_control
from django.views.decorators.http import require_safe

from apps.events import facade as events
from apps.queue import beacon_chains
from apps.queue.fairness import published, receipts

ACTS_SHOWN_MAX = 50
MARKS_SHOWN_MAX = 50


@require_safe
def fairness(request: HttpRequest, slug: str) -> HttpResponse:
    """Show the commitment for this event's queue, its outcome, and how to verify it in the browser or by command."""
    event = events.get_event(slug)
    header = published.read_header(event.id)
    marked = published.first_marked(event.id, MARKS_SHOWN_MAX + 1)
    statement = _statement(header.statement)
    context = {
        "event": event,
        "now": header,
        "chain_head": header.chain_head.hex(),
        "first_come_from": header.lobby_count + 1,
        "first_come_count": header.next_number - 1 - header.lobby_count,
        "last_number": header.next_number - 1,
        "draw": published.summary(event, header)["draw"],
        "reveal_by": header.reveal_by,
        "statement": statement,
        "beacon": _beacon_of(statement),
        "network": beacon_chains.name_of_network(_beacon_of(statement)),
        "steps": _steps(header),
        "claim": receipts.OPERATOR_PROOF if header.is_operator_proof else receipts.NOT_OPERATOR_PROOF,
        "marked": marked[:MARKS_SHOWN_MAX],
        "has_more_marked": len(marked) > MARKS_SHOWN_MAX,
        "acts": published.latest_acts(event.id, ACTS_SHOWN_MAX),
        "keys": receipts.published_keys(),
        "has_report": event.is_over(header.at) and events.publishes_report(event.id),
        "base_url": settings.SITE_URL.rstrip("/"),
    }
    response = render(request, "queue/fairness.html", context)
    patch_cache_control(response, private=True, no_cache=True)
    return response


def _statement(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}  # The verification reports the error.
    return value if isinstance(value, dict) else {}


def _beacon_of(statement: dict[str, Any]) -> dict[str, Any] | None:
    beacon = statement.get("beacon")
    return beacon if isinstance(beacon, dict) and beacon.get("source") not in (None, "", "none") else None


def _steps(header: published.Header) -> list[dict[str, Any]]:
    """Return the steps of the draw in order, with the time of each completed one."""
    if header.statement is None:
        return []
    steps = (
        ("Committed", header.committed_at, "The rule and the fingerprint of a secret are fixed."),
        ("Lobby closed", header.frozen_at, "No one can enter the draw after this."),
        ("Entrants fixed", header.digest_at, "One fingerprint of all entrants is published."),
        ("Revealed", header.revealed_at, "The secret and the seed are published."),
        ("Drawn", header.drawn_at, "The seed determines the number of everyone in the lobby."),
    )
    return [{"name": name, "at": at, "means": means} for name, at, means in steps]
