"""manage.py verify_queue: recomputes every position in an event's queue from published data alone."""

import json
import urllib.parse
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.events import facade as events
from apps.kernel.http import problems
from apps.kernel.http.downloads import fetch_json, read_json
from apps.queue.fairness import inclusion, published, stored, verification
from apps.queue.fairness.json_fields import Mismatch

PROGRESS_FROM = 50_000

_FILES = {
    "--save": "Save all verified data in this file, for --file and --earlier.",
    "--earlier": "A document saved before, which this one must continue. Reports the first changed number.",
    "--receipt": "A visitor's receipt. Checks its signature, its number, and the chain that it states.",
}


class Command(BaseCommand):
    help = (
        "Recomputes every position in an event's queue from published data alone: the lobby's draw and the first-come "
        "chain. Exits with 0 if everything matches, otherwise with 1 and the first mismatch. The format: "
        "docs/fairness.md."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("event", help="The event's slug.")
        source = parser.add_mutually_exclusive_group()
        source.add_argument(
            "--url", metavar="BASE", help="Fetch the data from this site, as in https://tickets.example."
        )
        source.add_argument("--file", type=Path, help="Verify a saved document, without network or database.")
        for name, words in _FILES.items():
            parser.add_argument(name, type=Path, metavar="FILE", help=words)

    def handle(self, *args: Any, **options: Any) -> None:
        slug = options["event"]
        document, fetch, event_id = _open_source(slug, options["url"], options["file"])
        if not isinstance(document, dict) or document.get("event") != slug:
            raise CommandError(f"the data is not of event {slug!r}")
        pages: dict[str, list[Any]] = {}

        def fetch_and_keep(part: str, after: int) -> Any:
            page = fetch(part, after)
            pages.setdefault(part, []).append(page)
            return page

        receipt, watch = None, None
        if options["receipt"] is not None:
            receipt = read_json(options["receipt"])
            watch = _require_match(inclusion.read_receipt(receipt, slug, document.get("keys")))
        verified = _require_match(
            verification.verify(
                document,
                fetch_and_keep,
                progress=self._show_progress if options["verbosity"] else None,
                watch=watch,
                earlier=None if options["earlier"] is None else read_json(options["earlier"]),
                whole=options["file"] is not None,
            )
        )
        if receipt is not None and (differs := inclusion.compare(receipt, document, verified)) is not None:
            raise CommandError(str(differs))
        if event_id is not None and (differs := stored.check(event_id)) is not None:
            raise CommandError(str(differs))
        if options["save"] is not None:
            if "entrants" not in pages:
                _fetch_all_entrants(fetch_and_keep, document)
            whole = published.merge_pages(document, pages)
            options["save"].write_text(json.dumps(whole, separators=(",", ":")) + "\n", encoding="utf-8")
        for sentence in describe_result(verified, receipt):
            self.stdout.write(sentence)

    def _show_progress(self, done: int, total: int) -> None:
        if total >= PROGRESS_FROM:
            self.stderr.write(f"\r{done:,} of {total:,}", ending="\n" if done >= total else "")
            self.stderr.flush()


def describe_result(verified: verification.Verified, receipt: Any = None) -> list[str]:
    """Return the verified facts as sentences."""
    sentences = []
    if verified.stage == "open":
        sentences.append(
            f"Lobby: open, {verified.lobby_count:,} entrants. The commitment matches the published statement."
        )
    elif verified.stage in ("closed", "counted", "revealed"):
        step = {
            "closed": "closed, the entrants' digest is not published yet",
            "counted": "the entrants match the published digest; the secret is not revealed yet",
            "revealed": "secret and seed match the commitment; the numbers are not drawn yet",
        }[verified.stage]
        sentences.append(f"Lobby: {verified.lobby_count:,} entrants; {step}.")
    elif verified.stage == "drawn":
        sentences.append(
            f"Draw: numbers 1 to {verified.drawn_count:,} have the only order that commitment, digest and secret allow."
        )
        if verified.is_operator_proof:
            sentences.append("Operator-proof: an outside beacon was mixed in.")
    if not verified.is_operator_proof and verified.stage != "none":
        sentences.append("Consistent, not operator-proof: so far the seed includes no outside beacon.")
    if verified.first_come_count:
        sentences.append(
            f"First come: {verified.first_come_count:,} numbers, {verified.lobby_count + 1:,} to "
            f"{verified.next_number - 1:,}, without a gap; the chain over them ends in {verified.chain_head}."
        )
    elif verified.stage == "none":
        sentences.append("No numbers have been assigned yet.")
    if verified.marked:
        numbers = ", ".join(map(str, verified.marked[:20])) + (", …" if len(verified.marked) > 20 else "")
        sentences.append(f"Marked as admitted ahead of their turn: {len(verified.marked):,} ({numbers}).")
    sentences.append(f"Recorded: {verified.admissions_count:,} admissions, {verified.acts_count:,} acts.")
    sentences += [f"Note: {note}." for note in verified.notes]
    if receipt is not None:
        where = (
            f"its leaf has number {verified.watched_number:,}"
            if verified.watched_number is not None
            else "its leaf is among the entrants"
            if verified.watched_is_entrant
            else "its leaf is not published yet"
        )
        sentences.append(f"Receipt: signed with a published key; {where}; the chain includes its chain head.")
    sentences.append("All published data is consistent.")
    return sentences


def _open_source(slug: str, base: str | None, path: Path | None) -> tuple[Any, verification.Fetch, int | None]:
    """Return the document, the function that fetches further pages, and the event's id if this site has the data."""
    if path is not None:
        return read_json(path), lambda *_: {}, None  # A whole document has no further pages.
    if base is not None:
        if urllib.parse.urlsplit(base).scheme not in ("http", "https"):
            raise CommandError(f"--url {base[:200]!r} is not an http or https URL")
        address = f"{base.rstrip('/')}/api/events/{urllib.parse.quote(slug, safe='')}/queue/proof"

        def fetch(part: str, after: int) -> Any:
            return fetch_json(f"{address}?{urllib.parse.urlencode({'part': part, 'after': after})}")

        return fetch_json(address), fetch, None
    try:
        event = events.get_event(slug)
        document = published.document(event)
    except problems.Problem as problem:
        raise CommandError(problem.detail) from problem
    # Converted to JSON and back: the types are those of a fetched document.
    return json.loads(json.dumps(document)), lambda part, after: published.page(event, part, after).body, event.id


def _fetch_all_entrants(fetch: verification.Fetch, document: Any) -> None:
    """Fetch the entrants that the verification did not need: after the draw it reads them by their numbers."""
    page = document["entrants"]
    while page is not None and (after := page["next"]) is not None:
        page = fetch("entrants", after)
        if page["next"] is not None and page["next"] <= after:
            raise CommandError("entrants: the pages go in circles")


def _require_match(outcome: Any) -> Any:
    if isinstance(outcome, Mismatch):
        raise CommandError(str(outcome))
    return outcome
