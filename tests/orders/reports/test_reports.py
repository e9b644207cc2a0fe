"""The report of a sale: computed from the ledger once the sale is over, signed, served as stored, and verifiable."""

import copy
import io
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management import CommandError, call_command
from django.test import Client
from pypdf import PdfReader

from apps.accounts.models import User
from apps.events import facade as events
from apps.events.models import Event, EventChange, OnSale
from apps.events.revisions import service as revisions
from apps.kernel import clock
from apps.kernel.tokens import signatures
from apps.orders.management.commands import verify_report
from apps.orders.models import ReportVersion
from apps.orders.reports import publication
from apps.orders.tasks import apply_retention
from apps.queue import facade as queue
from apps.queue.models import QueueEntry, WaitingRoom
from apps.reservations.models import Reservation
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.orders.reported_sale import close_sale, make_finished_sale, publish, return_tickets
from tests.support.queue.rooms import make_room
from tests.support.races import in_another_connection, storm

pytestmark = pytest.mark.django_db(transaction=True)
JSON_ADDRESS = "/api/events/concert/report"


@pytest.fixture(autouse=True)
def _everything_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports end a minute before their publication; here they include what has just happened."""
    monkeypatch.setattr(publication, "COMPLETE_AFTER", timedelta(0))


@pytest.fixture
def sold() -> events.EventView:
    return make_finished_sale()


def verify(source: Any, *options: str) -> str:
    out = io.StringIO()
    call_command("verify_report", str(source), *options, stdout=out)
    return out.getvalue()


def mismatch(source: Any, *options: str) -> str:
    with pytest.raises(CommandError) as refused:
        verify(source, *options)
    assert refused.value.returncode == 1
    assert "\n" not in str(refused.value)
    return str(refused.value)


def sign_again(document: dict[str, Any], key: Ed25519PrivateKey | None = None) -> dict[str, Any]:
    """Sign a changed report: with the organizer's key, or with another."""
    private = key or signatures.signer_for(publication.LABEL).private
    public = private.public_key().public_bytes_raw()
    signed_by = {"key_id": signatures.key_id_of(public), "algorithm": "Ed25519", "public": public.hex()}
    rest = {name: value for name, value in document.items() if name != "signature"} | {"signed_by": signed_by}
    return {**rest, "signature": private.sign(queue.canonical(rest)).hex()}


def test_the_figures_are_those_of_the_ledger(sold: events.EventView) -> None:
    report = publish(sold)
    assert report["people"] == {
        "joined": 13,
        "lobby": 0,
        "priority": 0,
        "admitted": 13,
        "buyers": 10,
        "joined_by_account": {"accounts": 5, "guests": 8},
    }
    assert report["holds"] == {
        "made": {"reservations": None, "tickets": 25},
        "bought": {"reservations": 10, "tickets": 19},
        "canceled": {"reservations": None, "tickets": 4},
        "expired": {"reservations": None, "tickets": 2},
        "revived": {"reservations": 0, "tickets": 0},
        "returned": {"reservations": None, "tickets": 2},
    }
    assert report["stock"] == {"capacity": 40, "blocked": 3}
    curve = report["stock_curve"]
    assert (curve["held"][-1], curve["sold"][-1]) == (0, 17)
    assert len(curve["points_seconds"]) == len(curve["sold"])
    assert report["admission"]["admissions"] == 13
    assert report["admission"]["joined"][-1] == report["admission"]["admitted"][-1] == 13
    assert report["acts"] == {
        "room": {"performed": {"message": 1}, "refused": {"admit": 1}},
        "stock": {"performed": {"blocked": 1}, "refused": {}},
    }
    assert report["shares"]["tickets"] == 19
    assert report["shares"]["buyers_by_account"] == {"accounts": 5, "guests": 5}
    assert sum(row["buyers"] for row in report["shares"]["tickets_per_buyer"]) == 10
    assert sum(row["tickets"] for row in report["shares"]["tickets_per_buyer"]) == 19
    assert report["shares"]["by_network"] == "not recorded"
    assert report["waits"]["counted"] == 13
    assert report["proof"]["is_verified"] is True
    assert report["proof"]["numbers"] == 13
    assert {check["breaches"] for check in report["audit"]["checks"] if check["invariant"] != "I4"} == {0}
    assert_audit_clean(without_money=True)


def test_no_row_of_a_breakdown_stands_for_fewer_than_five_people(sold: events.EventView) -> None:
    report = publish(sold)
    rows = report["waits"]["histogram"] + report["shares"]["tickets_per_buyer"]
    assert rows
    assert all(row.get("people", row.get("buyers")) >= 5 for row in rows)
    assert report["waits"]["p99_seconds"] is None
    assert report["shares"]["largest_buyers"] == []
    for curve, people in ((report["admission"]["joined"], 13), (report["admission"]["admitted"], 13)):
        steps = [after - before for before, after in zip([0, *curve], curve, strict=False) if after != before]
        assert sum(steps) == people
        assert min(steps) >= 5


def test_a_small_sale_has_totals_and_no_breakdown() -> None:
    event = make_room("concert", publishes_report=True)
    report = publish(close_sale(event))
    assert report["people"]["joined_by_account"] == {"accounts": 0, "guests": 0}
    assert (report["waits"]["histogram"], report["admission"]["joined"], report["stock_curve"]["sold"]) == (
        [],
        None,
        None,
    )
    other = make_room("other", publishes_report=True, venue="B")
    hold(other, seats=["hall-A-1"])
    Reservation.objects.update(status="canceled", ended_at=clock.now())
    report = publish(close_sale(other))
    assert report["people"]["joined"] == 1
    assert {row["reservations"] for row in report["holds"].values()} == {None, 0}
    assert report["people"]["joined_by_account"] is None


def test_a_report_is_published_only_after_the_sale_and_if_the_event_allows_it() -> None:
    event = make_event("concert", publishes_report=True)
    with pytest.raises(publication.ReportRefused, match="not over yet"):
        publish(event)
    reservation = hold(event, seats=["hall-A-1"])
    OnSale.objects.update(closes_at=clock.now() - timedelta(seconds=1))
    with pytest.raises(publication.ReportRefused, match="is still live"):
        publish(events.get_event("concert"))
    Reservation.objects.filter(pk=reservation.id).update(status="canceled", ended_at=clock.now())
    Event.objects.update(publishes_report=False)
    with pytest.raises(publication.ReportRefused, match="does not allow"):
        publish(events.get_event("concert"))
    assert not ReportVersion.objects.exists()


def test_a_report_waits_until_nothing_can_still_be_in_progress(
    sold: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figures end a minute before. So the sale must have ended, and the last reservation changed, before that."""
    monkeypatch.setattr(publication, "COMPLETE_AFTER", timedelta(seconds=60))
    with pytest.raises(publication.ReportRefused, match="has ended just now"):
        publish(sold)
    OnSale.objects.update(closes_at=clock.now() - timedelta(seconds=61))
    sold = events.get_event("concert")
    with pytest.raises(publication.ReportRefused, match="has changed just now"):
        publish(sold)
    past = clock.now() - timedelta(seconds=61)
    Reservation.objects.filter(confirmed_at__isnull=False).update(confirmed_at=past)
    Reservation.objects.filter(ended_at__isnull=False).update(ended_at=past)
    first = publish(sold)
    (returned,) = Reservation.objects.filter(status="confirmed", seat_count=1)[:1]
    return_tickets(returned.pk, 1)
    returned.refresh_from_db()
    assert returned.ended_at > past
    later = publish(sold)
    assert (first["version"], later["version"]) == (1, 2), "a return afterwards keeps it from nothing"
    assert later["holds"] == first["holds"]


def test_page_pdf_and_json_are_served_as_they_were_published(client: Client, sold: events.EventView) -> None:
    assert client.get(JSON_ADDRESS).status_code == 404
    assert client.get("/events/concert/report").status_code == 404
    publish(sold)
    stored = ReportVersion.objects.get()
    found = client.get(JSON_ADDRESS)
    assert found.content.decode() == stored.document
    assert found.headers["Cache-Control"] == "public, max-age=60"
    assert client.get(JSON_ADDRESS, headers={"if-none-match": found.headers["ETag"]}).status_code == 304
    page = client.get("/events/concert/report").content.decode()
    for words in (
        "Report of the sale", "Joined the line", ">13<", "Expired unpaid, and back on sale", "fewer than 5 (2 tickets)",
        "not recorded", "Waiting room: Visitors admitted by hand, refused", json.loads(stored.document)["signature"],
        'role="img"', "<title", "<desc", "<polyline", "Figures of this curve",
    ):  # fmt: skip
        assert words in page, words
    pdf = client.get("/events/concert/report.pdf")
    assert (pdf.headers["Content-Type"], pdf.content) == ("application/pdf", bytes(stored.pdf))
    text = "\n".join(one.extract_text() for one in PdfReader(io.BytesIO(pdf.content)).pages)
    for words in ("Report of the sale", "Joined the line", "Held and sold tickets", stored.key_id):
        assert words in text, words
    keys = client.get("/.well-known/fairgate-report-keys.json").json()["keys"]
    assert keys == [{"key_id": stored.key_id, "algorithm": "Ed25519", "public": bytes(stored.public_key).hex()}]
    Event.objects.update(publishes_report=False)
    for address in (JSON_ADDRESS, "/events/concert/report", "/events/concert/report.pdf"):
        assert client.get(address).status_code == 404
    assert client.get("/api/events/nothing/report").status_code == 404


def test_the_report_names_no_one(client: Client, sold: events.EventView) -> None:
    publish(sold)
    pages = PdfReader(io.BytesIO(client.get("/events/concert/report.pdf").content)).pages
    text = client.get(JSON_ADDRESS).content.decode() + "".join(one.extract_text() for one in pages)
    text += client.get("/events/concert/report").content.decode()
    forbidden = ["ada-", "grace.hopper", "hopper", "turing", "Nearly there", "@", "buyer@", "admit 0"]
    for entry in QueueEntry.objects.all():
        forbidden += [str(entry.pk), *([entry.visitor_id] if entry.visitor_id else [])]
    forbidden += [str(pk) for pk in Reservation.objects.values_list("pk", flat=True)]
    for word in forbidden:
        assert word.lower() not in text.lower(), word


def test_a_published_report_verifies(client: Client, sold: events.EventView, tmp_path: Path) -> None:
    publish(sold)
    saved, pdf = tmp_path / "report.json", tmp_path / "report.pdf"
    saved.write_bytes(client.get(JSON_ADDRESS).content)
    pdf.write_bytes(client.get("/events/concert/report.pdf").content)
    output = verify(saved, "--pdf", str(pdf))
    for words in ("Signature: valid", "Key: one of this installation", "PDF: belongs", "Ledger: every figure"):
        assert words in output
    proof = tmp_path / "line.json"
    call_command("verify_queue", "concert", save=proof, verbosity=0)
    assert "Line: the public proof is consistent" in verify(saved, "--proof", str(proof))
    pdf.write_bytes(pdf.read_bytes() + b"\n")
    assert "the PDF is not the one" in mismatch(saved, "--pdf", str(pdf))


def test_later_returns_do_not_contradict_a_report(client: Client, sold: events.EventView, tmp_path: Path) -> None:
    """The figures are those of the moment that the report names, whatever happens afterwards."""
    publish(sold)
    saved = tmp_path / "report.json"
    saved.write_bytes(client.get(JSON_ADDRESS).content)
    bought = Reservation.objects.filter(status="confirmed").order_by("-seat_count", "created_at")
    return_tickets(bought[0].pk, 1)
    return_tickets(bought.last().pk, bought.last().seat_count)  # type: ignore[union-attr]
    assert "Ledger: every figure" in verify(saved)
    later = publish(sold)
    assert later["version"] == 2
    assert later["holds"]["returned"]["tickets"] > json.loads(saved.read_text())["holds"]["returned"]["tickets"]
    assert "Ledger: every figure" in verify(saved)


def test_a_report_still_verifies_after_its_people_were_erased(
    client: Client, sold: events.EventView, tmp_path: Path, settings: Any
) -> None:
    """An erased identity still says whether it had an account, and several purchases of one buyer stay one buyer's."""
    settings.RETENTION_QUEUE_DAYS = 90
    publish(sold)
    saved = tmp_path / "report.json"
    saved.write_bytes(client.get(JSON_ADDRESS).content)
    Event.objects.update(starts_at=clock.now() - timedelta(days=91))
    assert apply_retention() > 0
    assert not QueueEntry.objects.filter(account__isnull=False).exists()
    assert not Reservation.objects.filter(account__isnull=False).exists()
    assert "Ledger: every figure" in verify(saved)


def nested(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for name in parents:
            document = document[name]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("people.buyers", 11),
        ("opened_at", "2026-11-23T00:00:00.000Z"),
        ("holds.expired.tickets", 0),
        ("acts.room.refused", {}),
        ("shares.tickets", 20),
        ("waits.counted", 1),
        ("stock_curve.sold", None),
        ("as_of", "2026-11-23T00:00:00.000Z"),
        ("proof.chain_head", "00" * 32),
        ("stock.capacity", 41),
        ("pdf_sha256", "00" * 32),
    ],
)
def test_a_changed_report_is_detected(sold: events.EventView, tmp_path: Path, path: str, value: Any) -> None:
    """By its signature; and by the ledger, if the organizer signed it again."""
    report = publish(sold)
    forged = copy.deepcopy(report)
    nested(path, value)(forged)
    saved = tmp_path / "report.json"
    saved.write_text(json.dumps(forged))
    assert "the signature is not valid" in mismatch(saved)
    saved.write_text(json.dumps(sign_again(forged, Ed25519PrivateKey.generate())))
    assert "which is not published" in mismatch(saved)
    if path in ("stock.capacity", "pdf_sha256"):
        return  # Not computed again.
    saved.write_text(json.dumps(sign_again(forged)))
    assert "was computed" in mismatch(saved)


def test_the_public_proof_contradicts_an_organizer_s_false_report(sold: events.EventView, tmp_path: Path) -> None:
    """With the organizer's key and without its database: what the public proof shows cannot be reported otherwise."""
    report = publish(sold)
    proof = tmp_path / "line.json"
    call_command("verify_queue", "concert", save=proof, verbosity=0)
    saved = tmp_path / "report.json"
    Event.objects.update(slug="gone")  # As if this were another installation.
    given = ("--proof", str(proof), "--key", report["signed_by"]["public"])
    saved.write_text(json.dumps(report))
    output = verify(saved, *given)
    assert "Key: the given one." in output
    assert "does not know the event" in output
    for path, value in (
        ("people.joined", 12),
        ("people.priority", 1),
        ("admission.by_reason", {"tick": 13}),
        ("acts.room.performed", {}),
        ("acts.room.refused", {"admit": 2}),
        ("proof.numbers", 14),
    ):
        forged = copy.deepcopy(report)
        nested(path, value)(forged)
        saved.write_text(json.dumps(sign_again(forged)))
        assert f"{path} is" in mismatch(saved, *given)
    assert "not with the given one" in mismatch(saved, "--key", "00" * 32)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "is not JSON"),
        ("[]", "not a report of a sale"),
        ("{}", "not a report of a sale"),
        ('{"kind": "fairgate sale report", "format": 2}', "only 1 is supported"),
        ('{"kind": "fairgate sale report", "format": 1}', "no readable signature"),
        ('{"kind": "fairgate sale report", "format": 1, "signed_by": 7, "signature": ""}', "no readable signature"),
    ],
)
def test_a_file_of_another_form_is_refused_in_one_line(tmp_path: Path, content: str, expected: str) -> None:
    saved = tmp_path / "report.json"
    saved.write_text(content)
    assert expected in mismatch(saved)
    assert "cannot be read" in mismatch(tmp_path / "nothing.json")


def test_a_signed_report_without_its_parts_is_refused_in_one_line(sold: events.EventView, tmp_path: Path) -> None:
    report = publish(sold)
    saved = tmp_path / "report.json"
    for name in ("people", "as_of", "proof", "acts"):
        saved.write_text(json.dumps(sign_again({key: value for key, value in report.items() if key != name})))
        assert f"the report has no {name}" in mismatch(saved)
    for path, value in (("as_of", "yesterday"), ("as_of", 7), ("people", 7), ("event", None)):
        forged = copy.deepcopy(report)
        nested(path, value)(forged)
        saved.write_text(json.dumps(sign_again(forged)))
        assert mismatch(saved)


def test_a_report_verifies_from_anywhere_by_its_address(live_site: str, sold: events.EventView) -> None:
    in_another_connection(lambda: publish(sold))
    for address in (f"{live_site}/events/concert/report", f"{live_site}{JSON_ADDRESS}"):
        output = verify(address)
        for words in (
            "Event: concert, 'Concert'.",
            "Signature: valid",
            "Key: published by the site",
            "PDF: belongs",
            "Line: the public proof",
        ):
            assert words in output
        assert "Not computed again: holds" in output
    assert "status 404" in mismatch(f"{live_site}/events/other/report")


@pytest.mark.parametrize("page", ["/events/hamlet/report", "/api/events/hamlet/report/"])
def test_the_report_of_another_event_is_refused(
    monkeypatch: pytest.MonkeyPatch, sold: events.EventView, page: str
) -> None:
    report = publish(sold)
    monkeypatch.setattr(verify_report, "fetch_json", lambda address: report)
    expected = "the address is that of event 'hamlet', but the report is of event 'concert'"
    assert mismatch(f"https://tickets.example{page}") == expected


def test_the_command_allows_publishes_and_shows_reports(sold: events.EventView) -> None:
    def run(*words: str) -> str:
        out = io.StringIO()
        call_command("sale_report", *words, stdout=out)
        return out.getvalue().strip()

    assert run("concert", "disable") == "concert: no report is allowed"
    assert run("concert", "disable") == "concert: no report is allowed, unchanged"
    with pytest.raises(CommandError, match="concert: the event does not allow a report"):
        run("concert", "publish")
    assert run("concert", "show").splitlines() == ["concert: no report is allowed", "  nothing is published"]
    assert run("concert", "enable") == "concert: a report is allowed"
    assert "concert: version 1 is published, " in run("concert", "publish")
    assert "version 2 is published" in run("concert", "publish")
    assert [line.split()[:2] for line in run("concert", "show").splitlines()[1:]] == [
        ["version", "2"],
        ["version", "1"],
    ]
    with pytest.raises(CommandError, match="no published event"):
        run("nowhere", "publish")


def test_two_publications_at_once_never_share_a_version(
    sold: events.EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have counted the same latest version before either is stored: the unique version refuses the second."""
    both = threading.Barrier(2, timeout=30)
    render = publication.report_pdf.render_report

    def wait_and_render(document: Any) -> bytes:
        pdf = render(document)
        both.wait()
        return pdf

    monkeypatch.setattr(publication.report_pdf, "render_report", wait_and_render)
    outcomes = storm(2, lambda _: publish(sold)["version"])
    assert sorted(str(outcome.error or outcome.value) for outcome in outcomes) == [
        "1", "another version was published just now",
    ]  # fmt: skip


def test_the_old_key_stays_published_after_a_change_of_the_secret(
    client: Client, sold: events.EventView, settings: Any, tmp_path: Path
) -> None:
    publish(sold)
    saved = tmp_path / "report.json"
    saved.write_bytes(client.get(JSON_ADDRESS).content)
    settings.SECRET_KEY = "another secret key of this deployment, long enough"
    assert "Ledger: every figure" in verify(saved)
    assert publish(sold)["signed_by"] != json.loads(saved.read_text())["signed_by"]
    assert len(client.get("/.well-known/fairgate-report-keys.json").json()["keys"]) == 2


@pytest.mark.parametrize("state", ["drained", "off"])
def test_a_report_is_verified_after_its_sale_was_opened_again(
    sold: events.EventView, tmp_path: Path, state: str
) -> None:
    """The numbers that it counts are still proved; others may join. Its false numbers are still detected."""
    WaitingRoom.objects.update(state=state)
    report = publish(sold)
    saved, proof = tmp_path / "report.json", tmp_path / "line.json"
    saved.write_text(json.dumps(report))
    revisions.change_event(
        sold.id,
        EventChange.Kind.ON_SALE,
        {"closes_at": clock.now() + timedelta(hours=1)},
        who="boss",
        why="a second night",
    )
    again = events.get_event("concert")
    for _ in range(3):
        join(again)
    call_command("verify_queue", "concert", save=proof, verbosity=0)
    output = verify(saved, "--proof", str(proof))
    assert "figures of the line follow from it" in output
    assert "match, without those that the reopened sale changes" in output
    changes = [
        ("people.joined", 12), ("people.priority", 1), ("proof.numbers", 12), ("proof.chain_head", "00" * 32),
        ("holds.expired.tickets", 0), ("shares.tickets", 20),
    ]  # fmt: skip
    for path, value in changes:
        forged = copy.deepcopy(report)
        nested(path, value)(forged)
        saved.write_text(json.dumps(sign_again(forged)))
        assert "was computed" in mismatch(saved, "--proof", str(proof))
    whole = json.loads(proof.read_text())
    (act,) = [act for act in whole["acts"]["items"] if "on sale again" in act["detail"]]
    act["detail"] = act["detail"].replace("after 13 numbers", "after 12 numbers")
    proof.write_text(json.dumps(whole))
    saved.write_text(json.dumps(report))
    assert "with another chain" in mismatch(saved, "--proof", str(proof))
    later = publish(close_sale(again))
    saved.write_text(json.dumps(later))
    assert "Ledger: every figure" in verify(saved)
    assert later["people"]["joined"] == report["people"]["joined"] + 3


def test_the_fairness_page_leads_to_the_report_after_the_sale(client: Client, sold: events.EventView) -> None:
    assert "/events/concert/report" in client.get("/events/concert/fairness").content.decode()
    make_room("other", venue="B")
    assert "/events/other/report" not in client.get("/events/other/fairness").content.decode()


def test_staff_allow_a_report_in_the_admin_and_see_the_versions(browser: Client, sold: events.EventView) -> None:
    publish(sold)
    browser.force_login(User.objects.create_superuser("admin"))
    page = browser.get(f"/admin/events/event/{sold.id}/change/").content.decode()
    assert 'name="publishes_report"' in page
    listed = browser.get("/admin/orders/reportversion/").content.decode()
    assert "/events/concert/report" in listed
    version = ReportVersion.objects.get()
    assert browser.get(f"/admin/orders/reportversion/{version.pk}/change/").status_code == 200
    assert browser.get("/admin/orders/reportversion/add/").status_code == 403
