"""Publication of a sale's report: computed once the sale is over, signed, stored, and served as it was stored.

The signature covers the canonical form of the document without the signature, as for receipts. It also covers the PDF,
whose digest is part of the document.
"""

import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError
from django.db.models import Max

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.kernel.models import AuditRun
from apps.kernel.tokens import signatures
from apps.orders.models import ReportVersion
from apps.orders.reports import figures, networks, report_pdf
from apps.queue import facade as queue
from apps.reservations import facade as reservations

FORMAT = 1
KIND = "fairgate sale report"
LABEL = b"fairgate reports 1"
COMPLETE_AFTER = timedelta(seconds=60)
"""The figures end this long before publication: no transaction that is still in progress began before."""


class ReportRefused(ValueError):
    """The report cannot be published now; the message says why."""


class ReportNotFound(problems.NotFound):
    title = "No report of this sale has been published."


def publish_report(event: events.EventView, *, who: str) -> ReportVersion:
    """Compute, sign and store the next version of the event's report. The first version ends the recording of networks:
    it stores their tally, and deletes their key and digests. Raises ReportRefused before the sale is over and
    settled, and if the event does not allow a report."""
    if not events.publishes_report(event.id):
        raise ReportRefused("the event does not allow a report")
    now = clock.now()
    # In whole milliseconds, as the document has it: a verification computes the figures of exactly this moment.
    as_of = datetime.fromisoformat(clock.iso(now - COMPLETE_AFTER))
    if not event.is_over(as_of):
        raise ReportRefused("the sale is not over yet, or has ended just now")
    if not reservations.report_figures().is_settled(event.id, as_of):
        raise ReportRefused("a reservation is still live, or has changed just now: publish the report a little later")
    # Read before the tally: if another publication stores its report after this, the unique version refuses this one,
    # which may have counted digests that the other was blanking.
    latest = ReportVersion.objects.filter(event_id=event.id).aggregate(latest=Max("version"))["latest"] or 0
    tally = networks.read_tally(event.id) or networks.count_tally(event, as_of)
    signer = signatures.signer_for(LABEL)
    document: dict[str, Any] = {
        "format": FORMAT,
        "kind": KIND,
        "version": latest + 1,
        "published_at": clock.iso(now),
        **describe_sale(event, as_of, tally),
        "signed_by": {"key_id": signer.key_id, "algorithm": signatures.ALGORITHM, "public": signer.public.hex()},
    }
    pdf = report_pdf.render_report(document)
    document["pdf_sha256"] = hashlib.sha256(pdf).hexdigest()
    document["signature"] = signer.sign(queue.canonical(document)).hex()
    try:
        with transactions.write():
            # The first lock is the room's, under which joins write digests.
            had_key = queue.delete_network_key(event.id)
            if tally.has_digests and not had_key:
                raise ReportRefused("the networks of its entries were erased just now: publish the report again")
            if not tally.is_stored:
                networks.store_tally(event.id, tally)
            report = ReportVersion.objects.create(
                event_id=event.id,
                version=latest + 1,
                as_of=as_of,
                published_at=now,
                published_by=who[:150],
                document=json.dumps(document, ensure_ascii=False, separators=(",", ":")),
                pdf=pdf,
                key_id=signer.key_id,
                public_key=signer.public,
            )
    except IntegrityError as error:
        # Two publications at the same time have counted the same latest version.
        raise ReportRefused("another version was published just now") from error
    # If this is interrupted, the next pass of retention continues it.
    queue.blank_networks(event.id)
    return report


def describe_sale(event: events.EventView, as_of: datetime, tally: networks.Tally) -> dict[str, Any]:
    """Return the content of the event's report: its figures as of this moment, and the present state of stock, audit
    and proof."""
    return {
        "event": event.slug,
        "name": event.name,
        "venue": event.venue_name,
        "city": event.city,
        "timezone": event.timezone,
        "starts_at": clock.iso(event.starts_at),
        "opened_at": clock.iso(event.policy.opens_at),
        "closed_at": clock.iso(event.policy.closes_at or event.starts_at),
        "is_canceled": event.status == "canceled",
        "as_of": clock.iso(as_of),
        **figures.compute_figures(event, as_of, tally),
        "stock": reservations.report_figures().read_stock(event.id),
        "audit": _audit(event, as_of),
        "proof": queue.report_figures().describe_proof(event),
    }


def _audit(event: events.EventView, as_of: datetime) -> dict[str, Any]:
    """Audit the event now, and count the audits of the whole system during its sale, as far as they are kept."""
    runs = AuditRun.objects.filter(started_at__gte=event.policy.opens_at, started_at__lte=as_of)
    counts = list(runs.values_list("breach_count", flat=True))
    return {
        "checks": [
            {
                "invariant": found["invariant"],
                "promise": found["promise"],
                "breaches": found["breach_count"],
                "was_checked": not found["unchecked"],
            }
            for found in auditor.report(auditor.run(event.slug))
        ],
        "runs_during_sale": {"kept": len(counts), "with_breaches": sum(count > 0 for count in counts)},
    }


def latest_report(event: events.EventView) -> ReportVersion:
    """Return the event's latest version. Raises ReportNotFound, also if the event no longer allows a report."""
    found = ReportVersion.objects.filter(event_id=event.id).order_by("-version").first()
    if found is None or not events.publishes_report(event.id):
        raise ReportNotFound
    return found


def published_keys() -> list[dict[str, str]]:
    """Return all keys that have signed reports, oldest first, and the present one."""
    used = ReportVersion.objects.order_by("published_at", "id").values_list("key_id", "public_key")
    keys = {key_id: bytes(public) for key_id, public in used}
    signer = signatures.signer_for(LABEL)
    keys.setdefault(signer.key_id, signer.public)
    return [
        {"key_id": key_id, "algorithm": signatures.ALGORITHM, "public": public.hex()} for key_id, public in keys.items()
    ]
