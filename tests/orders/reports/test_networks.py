"""The shares of networks in a report: as plain SQL counts them, without small counts, and the same after the digests,
their key and persons were erased."""

import io
import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from hypothesis import example, given
from hypothesis import strategies as st

from apps.events import facade as events
from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.orders.models import NetworkTally, ReportVersion
from apps.orders.reports import networks as report_networks
from apps.orders.reports import publication
from apps.orders.reports.disclosure import PEOPLE_MIN
from apps.orders.reports.networks import Row, Tally, TallyContradicted, describe_networks, tally_networks
from apps.orders.tasks import apply_retention
from apps.queue import facade as queue
from apps.queue.identity import networks
from apps.queue.models import QueueEntry, WaitingRoom
from tests.support.factories import assert_audit_clean, hold
from tests.support.orders.reported_sale import close_sale, publish
from tests.support.queue.rooms import claim_or_get_entry, make_room
from tests.support.races import in_another_connection, run_at
from tests.support.reservations.buyers import begin_payment, confirm

JSON_ADDRESS = "/api/events/concert/report"
SALE = (
    # Address, buyers, tickets of each.
    ("203.0.113.{}", 8, 3),
    ("::ffff:198.51.100.{}", 6, 2),
    ("198.51.101.{}", 5, 1),
    ("2001:db8:1:{}::7", 6, 1),
    ("2001:db8:2:{}::7", 1, 2),
    ("127.0.0.{}", 5, 1),
    (None, 5, 1),
)
TOP_NETWORKS = """
SELECT network, sum(line.quantity), count(DISTINCT buyer)
FROM reservations_reservation AS reservation
JOIN reservations_reservationline AS line ON line.reservation_id = reservation.id
JOIN queue_queueentry AS entry ON entry.id = entry_id
WHERE confirmed_at IS NOT NULL AND network <> '\\x00' GROUP BY 1 ORDER BY 2 DESC
"""
KINDS = """
SELECT CASE get_byte(network, 0) WHEN 4 THEN 'ipv4' WHEN 6 THEN 'ipv6' WHEN 0 THEN 'other' ELSE 'unrecorded' END,
       count(DISTINCT buyer), sum(line.quantity)
FROM reservations_reservation AS reservation
JOIN reservations_reservationline AS line ON line.reservation_id = reservation.id
JOIN queue_queueentry AS entry ON entry.id = entry_id
WHERE confirmed_at IS NOT NULL GROUP BY 1
"""
Of = dict[bytes | None, dict[str, int]]


def query(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.fixture
def sold(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> events.EventView:
    """A sale to buyers in several networks, closed."""
    monkeypatch.setattr(publication, "COMPLETE_AFTER", timedelta(0))
    event = make_room("concert", rows=0, general_admission=100, rate=1_000, active=500, publishes_report=True)
    sold_from(event, SALE)
    return close_sale(event)


def sold_from(event: events.EventView, sale: Any) -> None:
    wanted = [
        (address and address.format(number + 1), size) for address, buyers, size in sale for number in range(buyers)
    ]
    requests = [
        queue.JoinRequest(
            event,
            queue.Caller(visitor_id=queue.new_visitor_secret()),
            network=None if address is None else networks.network_of(address),
        )
        for address, _ in wanted
    ]
    for entry, (_, size) in zip(queue.join_many(requests), wanted, strict=True):
        assert isinstance(entry, queue.EntryView)
        held = hold(event, claim_or_get_entry(entry), ga_section="floor", ga_quantity=size)
        begin_payment(held.id)
        confirm(held.id, clock.now())


def verify(source: Any) -> str:
    out = io.StringIO()
    call_command("verify_report", str(source), stdout=out)
    return out.getvalue()


def save_report(client: Client, at: Path) -> Path:
    at.write_bytes(client.get(JSON_ADDRESS).content)
    return at


@pytest.mark.slow
def test_the_shares_are_those_of_plain_sql(sold: events.EventView) -> None:
    top, kinds = query(TOP_NETWORKS), query(KINDS)
    found = publish(sold)["shares"]["by_network"]
    assert {row["kinds"][0]: (row["buyers"], row["tickets"]) for row in found["kinds"]} == {
        kind: (buyers, tickets) for kind, buyers, tickets in kinds
    }
    assert [row["kinds"] for row in found["kinds"]] == [["ipv4"], ["ipv6"], ["other"], ["unrecorded"]]
    assert found["networks"] == len(top) == 5
    tickets = sum(row[1] for row in top)
    assert found["largest"] == [
        {
            "networks": 1,
            "networks_permille": None,
            "buyers": top[0][2],
            "tickets_permille": round(1000 * top[0][1] / tickets),
        }
    ]
    assert_audit_clean(without_money=True)


@pytest.mark.slow
def test_publication_deletes_key_and_digests_and_every_version_verifies(
    client: Client, sold: events.EventView, tmp_path: Path
) -> None:
    first = publish(sold)
    assert WaitingRoom.objects.get().network_key is None
    assert WaitingRoom.objects.get().networks_erased_at is not None
    assert not QueueEntry.objects.filter(network__isnull=False).exists()
    saved = save_report(client, tmp_path / "one.json")
    assert "Ledger: every figure" in verify(saved)
    second = publish(sold)
    assert second["version"] == 2
    assert second["shares"] == first["shares"]
    assert NetworkTally.objects.count() == 1
    assert "Ledger: every figure" in verify(save_report(client, tmp_path / "two.json"))
    Event.objects.update(starts_at=clock.now() - timedelta(days=91))
    assert apply_retention() > 0
    assert "Ledger: every figure" in verify(saved)


@pytest.mark.slow
def test_page_pdf_and_json_have_the_shares_and_no_digest(client: Client, sold: events.EventView) -> None:
    digests = [bytes(one).hex() for (one,) in query("SELECT network FROM queue_queueentry WHERE network <> '\\x00'")]
    report = publish(sold)
    page = client.get("/events/concert/report").content.decode()
    assert "From which networks" in page
    assert "Bought from the largest network" in page
    from pypdf import PdfReader

    pdf = PdfReader(io.BytesIO(client.get("/events/concert/report.pdf").content))
    text = " ".join(sheet.extract_text() for sheet in pdf.pages)
    assert "From which networks" in text
    stored = json.dumps(report) + page + text + str(NetworkTally.objects.get().rows)
    assert digests
    assert not any(digest in stored for digest in digests)


@pytest.mark.slow
def test_a_false_share_or_tally_is_found(client: Client, sold: events.EventView, tmp_path: Path) -> None:
    from tests.orders.reports.test_reports import sign_again

    report = publish(sold)
    saved = tmp_path / "report.json"
    forged = json.loads(json.dumps(report))
    forged["shares"]["by_network"]["largest"][0]["tickets_permille"] = 1
    saved.write_text(json.dumps(sign_again(forged)))
    with pytest.raises(CommandError, match=r"shares\.by_network\.largest is .* was computed"):
        verify(saved)
    saved.write_text(json.dumps(report))
    tally = NetworkTally.objects.get()
    tally.rows[0][1] += 1
    tally.save()
    with pytest.raises(CommandError, match="the tally of networks and the ledger"):
        verify(saved)


@pytest.mark.slow
def test_an_erased_person_counts_as_unrecorded_in_a_later_report(sold: events.EventView) -> None:
    ((entry_id,),) = query("SELECT id FROM queue_queueentry WHERE get_byte(network, 0) = 4 ORDER BY number LIMIT 1")
    before = Counter(dict(query("SELECT get_byte(network, 0), count(*) FROM queue_queueentry GROUP BY 1")))
    with transactions.write():
        queue.erase_entries([entry_id])
    after = Counter(dict(query("SELECT get_byte(network, 0), count(*) FROM queue_queueentry GROUP BY 1")))
    assert (after[4], after[None]) == (before[4] - 1, before[None] + 1)
    found = publish(sold)["shares"]["by_network"]
    assert sum(row["buyers"] for row in found["kinds"]) == 36


@pytest.mark.slow
def test_retention_during_a_publication_refuses_it(sold: events.EventView) -> None:
    """The publication has seen the key; before it reads the digests, the pass of retention deletes both. Publishing
    again then reports that nothing is recorded, instead of a part."""

    def erase() -> None:
        Event.objects.update(starts_at=clock.now() - timedelta(days=91))
        networks.erase_networks(clock.now() - timedelta(days=90))

    erasing = run_at("report_networks", "before", lambda: in_another_connection(erase))
    with erasing, pytest.raises(publication.ReportRefused, match="erased just now"):
        publish(sold)
    assert not ReportVersion.objects.exists()
    assert not NetworkTally.objects.exists()
    assert publish(sold)["shares"]["by_network"] == "not recorded"


@pytest.mark.slow
def test_a_publication_that_counted_while_another_blanked_is_refused(sold: events.EventView) -> None:
    """The second has read the latest version and the key; then the first publishes and blanks. The second would count
    blanked digests, and the unique version, or the missing key, refuses it."""
    publishing = run_at("report_networks", "before", lambda: in_another_connection(lambda: publish(sold)))
    with publishing, pytest.raises(publication.ReportRefused):
        publish(sold)
    assert ReportVersion.objects.count() == NetworkTally.objects.count() == 1
    again = publish(sold)
    assert again["version"] == 2
    assert again["shares"]["by_network"]["networks"] == 5


def test_later_purchases_are_unrecorded_and_a_smaller_ledger_contradicts_the_tally() -> None:
    now = clock.process_now()
    tally = Tally((Row("ipv4", 20, 10, 1), Row("ipv4", 10, 6, 2)), now, is_stored=True)
    found = describe_networks(tally, now, 22, 40)
    assert isinstance(found, dict)
    assert found["kinds"] == [{"kinds": ["ipv4"], "buyers": 22, "tickets": 40}]
    later = describe_networks(tally, now + timedelta(hours=1), 28, 47)
    assert isinstance(later, dict)
    assert later["kinds"][1] == {"kinds": ["unrecorded"], "buyers": 6, "tickets": 7}
    assert describe_networks(tally, now - timedelta(hours=1), 22, 40) == "not recorded"
    for buyers, tickets, at in ((22, 41, now), (21, 40, now), (22, 39, now + timedelta(hours=1))):
        with pytest.raises(TallyContradicted):
            describe_networks(tally, at, buyers, tickets)


def test_a_sale_without_digests_is_not_recorded() -> None:
    now = clock.process_now()
    assert describe_networks(None, now, 9, 9) == "not recorded"
    assert describe_networks(Tally((), now, is_stored=True), now, 0, 0) == "not recorded"
    unrecorded = Tally((Row("unrecorded", 9, 9, 1),), now, is_stored=True)
    assert describe_networks(unrecorded, now, 9, 9) == "not recorded"


_digests = st.one_of(
    st.none(), st.just(b"\x00"), st.integers(0, 30).map(lambda n: (b"\x04", b"\x06")[n % 2] + bytes([n]))
)
_tickets = st.dictionaries(
    _digests, st.dictionaries(st.integers(0, 60).map(str), st.integers(1, 9), min_size=1, max_size=20), max_size=25
)


def in_the_order_of_the_report(tickets: Of) -> list[dict[str, int]]:
    """Return the buyers of each IPv4 and IPv6 network, the network with the most tickets first. Of equal ones, the one
    where the most buyers count comes first."""
    seen: set[str] = set()
    ranked = []
    for found, of_buyers in sorted(tickets.items(), key=lambda item: (-sum(item[1].values()), item[0] or b"")):
        if found is not None and found != b"\x00":
            ranked.append((-sum(of_buyers.values()), -len(of_buyers.keys() - seen), of_buyers))
        seen.update(of_buyers)
    return [of_buyers for *_, of_buyers in sorted(ranked, key=lambda one: one[:2])]


_EQUAL_NETWORKS: Of = {
    b"\x04\x00": {"0": 1, "1": 1, "5": 1, "6": 5},
    b"\x04\x02": {"0": 1, "1": 1, "2": 1, "3": 1, "7": 1, "8": 1, "9": 2},
    b"\x06\x01": {"4": 1},
}
"""Of two networks with eight tickets the second one counts first: five buyers count there, four at the other."""


@example(_EQUAL_NETWORKS)
@given(_tickets)
def test_no_share_reveals_fewer_than_five_people(tickets: Of) -> None:
    """The people of each published share, those between it and the previous one, and all others are five or more, or
    none; all sums are those of the sale."""
    now = clock.process_now()
    tally = Tally(tuple(tally_networks(tickets)), now, is_stored=True)
    people = {buyer for of_buyers in tickets.values() for buyer in of_buyers}
    bought = sum(sum(of_buyers.values()) for of_buyers in tickets.values())
    found = describe_networks(tally, now, len(people), bought)
    if found == report_networks.NOT_RECORDED:
        return
    assert isinstance(found, dict)
    if found["kinds"]:
        assert sum(row["buyers"] for row in found["kinds"]) == len(people)
        assert sum(row["tickets"] for row in found["kinds"]) == bought
    assert all(row["buyers"] >= PEOPLE_MIN for row in found["kinds"])
    ordered = in_the_order_of_the_report(tickets)
    last_count = 0
    for row in found["largest"]:
        inside = {buyer for of_buyers in ordered[: row["networks"]] for buyer in of_buyers}
        assert len(inside) >= PEOPLE_MIN
        if row["networks"] != last_count:
            between = {buyer for of_buyers in ordered[last_count : row["networks"]] for buyer in of_buyers}
            assert len(between) >= PEOPLE_MIN
        others = {buyer for of_buyers in ordered[row["networks"] :] for buyer in of_buyers}
        assert len(others) >= PEOPLE_MIN
        last_count = row["networks"]
