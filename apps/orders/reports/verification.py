"""Checks a published report: its signature, its PDF, and every figure that can be computed again."""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.tokens import ed25519, signatures
from apps.orders.reports import figures, networks
from apps.orders.reports.publication import FORMAT, KIND
from apps.queue import facade as queue

_CHANGED_BY_REOPENING = (
    "people.priority", "people.admitted", "people.joined_by_account", "waits", "proof.numbers", "proof.chain_head",
)  # fmt: skip
"""What visitors who still waited change when the sale is opened again. The public proof shows priority and numbers."""


class ReportMismatch(ValueError):
    """The report is not what it claims to be; the message says where."""


def check_signature(document: Any) -> str:
    """Return the id of the key that has signed the report. Raises ReportMismatch unless the report is complete and its
    signature valid for the key that it names."""
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ReportMismatch("this is not a report of a sale")
    if document.get("format") != FORMAT:
        raise ReportMismatch(f"the format is {str(document.get('format'))[:20]!r}, but only {FORMAT} is supported")
    try:
        key_id, public = document["signed_by"]["key_id"], bytes.fromhex(document["signed_by"]["public"])
        signature = bytes.fromhex(document["signature"])
    except (KeyError, TypeError, ValueError) as error:
        raise ReportMismatch("the report has no readable signature") from error
    if signatures.key_id_of(public) != key_id:
        raise ReportMismatch("the key's id is not derived from the key")
    signed = {name: value for name, value in document.items() if name != "signature"}
    if not ed25519.is_signed_by(public, signature, queue.canonical(signed)):
        raise ReportMismatch("the signature is not valid: the report was changed, or never issued")
    kinds = dict.fromkeys((*figures.COMPUTED, "proof"), dict) | dict.fromkeys(("event", "as_of", "opened_at"), str)
    for name, kind in kinds.items():
        if not isinstance(document.get(name), kind):
            raise ReportMismatch(f"the report has no {name}")
    return str(key_id)


def check_key(document: Mapping[str, Any], keys: Any) -> None:
    """Raise ReportMismatch unless the report's key is among the organizer's published keys."""
    listed = keys.get("keys") if isinstance(keys, Mapping) else None
    known = {key.get("public") for key in listed if isinstance(key, Mapping)} if isinstance(listed, list) else set()
    if document["signed_by"]["public"] not in known:
        raise ReportMismatch(f"the report is signed with key {document['signed_by']['key_id']}, which is not published")


def check_pdf(document: Mapping[str, Any], pdf: bytes) -> None:
    """Raise ReportMismatch unless this is the report's PDF."""
    if hashlib.sha256(pdf).hexdigest() != document.get("pdf_sha256"):
        raise ReportMismatch("the PDF is not the one that belongs to this report")


def check_against_proof(document: Mapping[str, Any], whole: Any) -> None:
    """Compare the report with the figures that follow from the event's verified public proof. Raises ReportMismatch."""
    if whole.get("event") != document["event"]:
        raise ReportMismatch(f"the proof is of event {str(whole.get('event'))[:80]!r}")
    found = queue.report_figures().figures_of_proof(whole, datetime.fromisoformat(document["as_of"]))
    people, admission, acts = document["people"], document["admission"], document["acts"]["room"]
    pairs = {
        **{f"people.{name}": (people[name], found[name]) for name in ("joined", "lobby", "priority")},
        "admission.by_reason": (admission["by_reason"], found["admissions"]),
        "acts.room.performed": (acts["performed"], found["performed"]),
        "acts.room.refused": (acts["refused"], found["refused"]),
        **{f"proof.{name}": (document["proof"].get(name), value) for name, value in found["proof"].items()},
    }
    _require_equal(pairs)


def check_against_ledger(document: Mapping[str, Any], event: events.EventView) -> bool:
    """Compute the report's figures again from this installation's ledger, as of the same moment. Raises
    ReportMismatch. Return whether all are compared: not those in _CHANGED_BY_REOPENING if the sale was opened again
    since."""
    try:
        as_of, tally = datetime.fromisoformat(document["as_of"]), networks.read_tally(event.id)
        found = figures.compute_figures(event, as_of, tally)
    except networks.TallyContradicted as error:
        raise ReportMismatch(str(error)) from error
    # First: the points of all curves and the waits depend on it.
    pairs = {"opened_at": (document["opened_at"], clock.iso(event.policy.opens_at))}
    pairs |= dict(_leaves("", {name: document[name] for name in figures.COMPUTED}, found))
    proof = queue.report_figures().describe_proof(event)
    pairs |= {f"proof.{name}": (document["proof"].get(name), value) for name, value in proof.items()}
    is_sold_again = queue.report_figures().was_sold_again(event.id, as_of)
    if is_sold_again:
        pairs = {path: pair for path, pair in pairs.items() if not path.startswith(_CHANGED_BY_REOPENING)}
    _require_equal(pairs)
    return not is_sold_again


def _leaves(path: str, reported: Any, found: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the pairs of values below two objects with their paths."""
    if not isinstance(reported, Mapping) or not isinstance(found, Mapping):
        yield path, (reported, found)
        return
    for name in sorted({*reported, *found}):
        yield from _leaves(f"{path}.{name}".lstrip("."), reported.get(name), found.get(name))


def _require_equal(pairs: Mapping[str, tuple[Any, Any]]) -> None:
    for path, (reported, found) in pairs.items():
        if reported != found:
            raise ReportMismatch(f"{path} is {str(reported)[:120]}, but {str(found)[:120]} was computed")
