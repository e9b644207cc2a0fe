"""Changes a published event, in one transaction that records who changed what and why.

Everything is decided under the locks of the event's and the on-sale's row, by values and a clock read after them.
Holds lock neither row. They, and the waiting room, know the new policy within two seconds: so an opening is not moved
near its time (`proposal.OPENING_MARGIN_SECONDS`), and new limits and fees hold a few seconds later. A live hold keeps
its deadline, which is stored in its row, and its terms (`terms.terms_at`).
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from apps.events import event_views
from apps.events.models import Event, EventChange, OnSale
from apps.events.publication import lock_event
from apps.events.revisions.proposal import (
    EFFECTIVE_AFTER_SECONDS,
    FIELDS,
    Kind,
    Proposal,
    complete,
    require_allowed,
    values_of,
)
from apps.events.revisions.registry import change_parts
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems

log = logging.getLogger(__name__)

LOCK_MS = 5_000
STATEMENT_MS = 15_000
WHY_LENGTH_MAX = 200
MESSAGE_LENGTH_MAX = 4_000
_EVENT_FIELDS = ("starts_at", "doors_at", "ends_at")


class EventChangedMeanwhile(problems.StaffProblem):
    """The values were changed after the user saw them. Nothing was changed."""

    type, status, title = "changed-meanwhile", 409, "The event was changed since you opened the page. Check it again."


def propose(
    event_id: int, kind: str, wanted: Mapping[str, Any], *, message: str = "", return_days: int = 0
) -> tuple[Proposal, list[str]]:
    """Return the proposed change, and sentences on what it means for those who hold, bought or wait. Changes nothing.
    Raises Invalid and EventNotFound."""
    event = event_views.get_event_by_id(event_id)
    proposal = _proposal(event, kind, wanted, clock.now(), message=message, return_days=return_days)
    require_allowed(proposal)
    return proposal, [text for part in change_parts() for text in part.describe(proposal)]


def change_event(
    event_id: int,
    kind: str,
    wanted: Mapping[str, Any],
    *,
    who: str,
    why: str,
    message: str = "",
    return_days: int = 0,
    seen: str | None = None,
) -> int | None:
    """Change the published event and return the id of the recorded change; None if nothing would change.

    `wanted` has values of the kind's FIELDS. `seen` is the `version` of the values that the user saw. Raises Invalid,
    EventNotFound, EventChangedMeanwhile, and problems of the apps above.
    """
    _check_texts(why, message)
    with transactions.write(lock_ms=LOCK_MS, statement_ms=STATEMENT_MS):
        row = lock_event(event_id)
        # The second lock: staff may still edit the on-sale of a draft, which locks the event first, too.
        on_sale = OnSale.objects.select_for_update(no_key=True).filter(event_id=event_id).first()
        if on_sale is None or row.status != Event.Status.PUBLISHED:
            raise problems.Invalid({"event": "is not published"})
        event = event_views.get_event_by_id(event_id)
        if seen is not None and seen != version(event, kind):
            raise EventChangedMeanwhile
        proposal = _proposal(
            event, kind, wanted, clock.now(), message=message, who=who, why=why.strip(), return_days=return_days
        )
        if not proposal.changed:
            return None
        require_allowed(proposal)
        effective_at = proposal.now + timedelta(seconds=EFFECTIVE_AFTER_SECONDS)
        _write(row, on_sale, proposal, effective_at)
        change = EventChange.objects.create(
            event_id=event_id,
            kind=kind,
            at=proposal.now,
            effective_at=effective_at,
            who=who[:150],
            why=proposal.why,
            message=proposal.message,
            before=_to_json(proposal.before),
            after=_to_json(proposal.after),
        )
        for part in change_parts():
            part.apply(proposal, change.pk)
    log.info("event %s: %s changed: %s", event.slug, kind, ", ".join(sorted(proposal.changed)))
    return change.pk


def version(event: event_views.EventView, kind: str) -> str:
    """Return a value that differs if the event's values of this kind do."""
    values = json.dumps([event.status, _to_json(values_of(event, kind))], sort_keys=True)
    return hashlib.sha256(values.encode()).hexdigest()[:24]


def _proposal(
    event: event_views.EventView,
    kind: str,
    wanted: Mapping[str, Any],
    now: datetime,
    *,
    message: str,
    return_days: int,
    who: str = "",
    why: str = "",
) -> Proposal:
    if event.status != Event.Status.PUBLISHED:
        raise problems.Invalid({"event": "is not published"})
    if kind not in FIELDS:
        raise problems.Invalid({"kind": "is unknown"})
    unknown = wanted.keys() - FIELDS[kind]
    if unknown:
        raise problems.Invalid({sorted(unknown)[0]: "cannot be changed here"})
    before, after = values_of(event, kind), complete(event, kind, wanted, now)
    return Proposal(event, kind, before, after, now, message.strip(), who, why, return_days)


def _check_texts(why: str, message: str) -> None:
    errors = {}
    if not why.strip() or not why.isprintable() or len(why) > WHY_LENGTH_MAX:
        errors["why"] = f"enter the reason, in one line of at most {WHY_LENGTH_MAX} characters"
    if len(message) > MESSAGE_LENGTH_MAX or "\x00" in message:
        errors["message"] = f"must be text of at most {MESSAGE_LENGTH_MAX:,} characters"
    if errors:
        raise problems.Invalid(errors)


def _write(row: Event, on_sale: OnSale, proposal: Proposal, effective_at: datetime) -> None:
    of_event = [name for name in proposal.changed if name in _EVENT_FIELDS]
    of_on_sale = [name for name in proposal.changed if name not in _EVENT_FIELDS]
    for name in of_event:
        setattr(row, name, proposal.after[name])
    for name in of_on_sale:
        setattr(on_sale, name, proposal.after[name])
    if proposal.kind in (Kind.LIMITS, Kind.FEES):
        on_sale.terms_since = effective_at
        of_on_sale.append("terms_since")
    if of_event:
        row.save(update_fields=of_event)
    if of_on_sale:
        on_sale.save(update_fields=of_on_sale)


def _to_json(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: clock.iso(value) if isinstance(value, datetime) else value for name, value in values.items()}
