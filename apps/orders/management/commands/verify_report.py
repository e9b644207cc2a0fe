"""`manage.py verify_report FILE|URL`: checks the published report of a sale."""

import json
import urllib.parse
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from django.urls import NoReverseMatch, Resolver404, resolve, reverse

from apps.events import facade as events
from apps.kernel.cli import report_errors_in_one_line
from apps.kernel.http.downloads import fetch_bytes, fetch_json, read_bytes, read_json
from apps.orders.reports import verification
from apps.orders.reports.publication import published_keys
from apps.queue import facade as queue


class Command(BaseCommand):
    help = (
        "Checks the report of a sale: its signature, and the figures that can be computed again. From a URL, the "
        "figures of the line are compared with the event's public proof, which is verified too; from a file, all "
        "figures are compared with this installation's ledger, if it knows the event. Exits with 1 at the first "
        "mismatch."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        report_errors_in_one_line(parser)
        parser.add_argument("source", metavar="FILE|URL", help="the report: JSON in a file, or at its address")
        parser.add_argument("--pdf", type=Path, metavar="FILE", help="also check that this PDF belongs to the report")
        parser.add_argument("--key", metavar="HEX", help="the organizer's public key, known from elsewhere")
        parser.add_argument(
            "--proof", type=Path, metavar="FILE", help="compare with a proof that verify_queue --save has written"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        source = options["source"]
        is_url = source.startswith(("http://", "https://"))
        document = fetch_json(_api_address(source)) if is_url else read_json(Path(source))
        try:
            for sentence in self._verify(document, source if is_url else "", options):
                self.stdout.write(sentence)
        except verification.ReportMismatch as mismatch:
            raise CommandError(str(mismatch)) from mismatch
        except (KeyError, TypeError, ValueError, AttributeError, NoReverseMatch) as error:
            raise CommandError(f"the report or the proof is not complete: {error!r}"[:300]) from error

    def _verify(self, document: Any, address: str, options: dict[str, Any]) -> list[str]:
        key_id = verification.check_signature(document)
        _require_event_of(address, document)
        # A signed name may still contain control characters; its representation shows them.
        results = [f"Event: {document['event']}, {document['name']!r}.", f"Signature: valid, by key {key_id}."]
        event = None if address else _known_event(document["event"])
        if options["key"]:
            if document["signed_by"]["public"] != options["key"].strip().lower():
                raise verification.ReportMismatch(f"the report is signed with key {key_id}, not with the given one")
            results.append("Key: the given one.")
        elif address:
            verification.check_key(document, fetch_json(_address(address, reverse("orders:report_keys"))))
            results.append("Key: published by the site.")
        elif event is not None:
            verification.check_key(document, {"keys": published_keys()})
            results.append("Key: one of this installation.")
        else:
            results.append(
                "Note: the key is named by the report alone; compare it with the organizer's, or give --key."
            )
        if address or options["pdf"]:
            page = reverse("orders:report_pdf", args=[document["event"]])
            at = _address(address, page)
            given = options["pdf"]
            verification.check_pdf(document, read_bytes(given) if given else fetch_bytes(at, "application/pdf"))
            results.append("PDF: belongs to this report.")
        if address or options["proof"]:
            verification.check_against_proof(document, _read_proof(document["event"], address, options["proof"]))
            results.append("Line: the public proof is consistent, and the report's figures of the line follow from it.")
        if event is not None and not verification.check_against_ledger(document, event):
            results.append(
                "Ledger: the figures were computed again and match, without those that the reopened sale changes."
            )
        elif event is not None:
            results.append("Ledger: every figure was computed again and matches.")
        elif not address:
            results.append("Note: this installation does not know the event, so its figures were not computed again.")
        left = "capacity and blocked stock, and the audit" if event else "holds, stock, shares, waits and the audit"
        results.append(f"Not computed again: {left}.")
        return results


def _api_address(source: str) -> str:
    """Return the address of the JSON; the address of the page is accepted, too."""
    parts = urllib.parse.urlsplit(source)
    path = parts.path.rstrip("/")
    if path.startswith("/events/") and path.endswith("/report"):
        path = f"/api{path}"
    return parts._replace(path=path, fragment="").geturl()


def _require_event_of(address: str, document: Any) -> None:
    """Raise ReportMismatch if the address is that of another event's report than this one."""
    try:
        path = urllib.parse.unquote(urllib.parse.urlsplit(_api_address(address)).path)
        asked = resolve(path).kwargs.get("event")
    except Resolver404:
        return  # A file, or an address of another form, which names no event.
    if asked is not None and asked != document["event"]:
        raise verification.ReportMismatch(
            f"the address is that of event {asked!r}, but the report is of event {document['event']!r}"
        )


def _address(source: str, path: str) -> str:
    return urllib.parse.urlsplit(source)._replace(path=path, query="", fragment="").geturl()


def _known_event(slug: Any) -> events.EventView | None:
    """Return the event, if this installation has a database with it."""
    try:
        return events.get_event(str(slug))
    except (events.EventNotFound, DatabaseError):
        return None


def _read_proof(slug: str, address: str, path: Path | None) -> Any:
    if path is not None:
        whole = queue.report_figures().verify_published(read_json(path), lambda *_: {})
    else:
        proof = _address(address, reverse("queue_api_proof", args=[slug]))

        def fetch(part: str, after: int) -> Any:
            return fetch_json(f"{proof}?{urllib.parse.urlencode({'part': part, 'after': after})}")

        whole = queue.report_figures().verify_published(fetch_json(proof), fetch)
    if isinstance(whole, str):
        raise verification.ReportMismatch(f"the event's public proof: {whole}")
    return json.loads(json.dumps(whole))
