"""The networks that entries joined from: as keyed digests, only where a report is allowed, and only until it is
published."""

import ipaddress
import json
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from apps.accounts.models import User
from apps.events.facade import EventView
from apps.events.models import Event
from apps.kernel import clock, rate_limits
from apps.kernel.db import sql, transactions
from apps.kernel.http import client_address
from apps.kernel.rate_limits.limits import Limits
from apps.orders.tasks import apply_retention
from apps.queue import facade
from apps.queue.entries import positions, vip_links
from apps.queue.identity import networks
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.screening.result import Screening
from tests.support.api_client import Api
from tests.support.factories import join, make_event
from tests.support.queue.rooms import make_room
from tests.support.races import in_another_connection, run_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/events/concert/join"


@pytest.fixture
def event() -> EventView:
    return make_room(rate=1_000, active=500, publishes_report=True)


def visitor(name: object) -> facade.Caller:
    return facade.Caller(visitor_id=f"visitor-{name}")


def join_from(event: EventView, name: object, address: str) -> facade.EntryView:
    return positions.join(event, visitor(name), network=networks.recorded_network(event, lambda: address))


def stored() -> list[bytes | None]:
    found = QueueEntry.objects.order_by("number").values_list("network", flat=True)
    return [None if one is None else bytes(one) for one in found]


def key() -> bytes | None:
    found = WaitingRoom.objects.get().network_key
    return None if found is None else bytes(found)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.7", b"\x04\xcb\x00\x71"),
        ("203.0.113.250", b"\x04\xcb\x00\x71"),
        ("::ffff:203.0.113.9", b"\x04\xcb\x00\x71"),
        ("::FFFF:cb00:7109", b"\x04\xcb\x00\x71"),
        ("203.0.114.7", b"\x04\xcb\x00\x72"),
        ("2001:db8:1:2::7", b"\x06\x20\x01\x0d\xb8\x00\x01"),
        ("2001:db8:1:ffff::1%eth0", b"\x06\x20\x01\x0d\xb8\x00\x01"),
        ("127.0.0.1", networks.OTHER),
        ("::1", networks.OTHER),
        ("::ffff:127.0.0.1", networks.OTHER),
        (client_address.UNKNOWN, networks.OTHER),
        ("testclient", networks.OTHER),
        ("unknown!", networks.OTHER),
        ("198.51.100.7", networks.OTHER),
        ("::ffff:198.51.100.7", networks.OTHER),
    ],
)
def test_a_network_is_a_prefix_and_other_addresses_are_a_class_of_their_own(
    monkeypatch: pytest.MonkeyPatch, address: str, network: bytes
) -> None:
    exempt = Limits({}, [ipaddress.ip_network("198.51.100.0/24")])
    monkeypatch.setattr(rate_limits, "subject", exempt.subject)
    assert networks.network_of(address) == network


def test_equal_networks_of_one_event_have_equal_digests_and_two_events_share_none(event: EventView) -> None:
    other = make_room("other", publishes_report=True, venue="B")
    addresses = ("203.0.113.7", "::ffff:203.0.113.8", "203.0.114.7", "2001:db8::1", "127.0.0.1")
    for number, address in enumerate(addresses):
        join_from(event, number, address)
    first, mapped, second, third, local = stored()
    assert first == mapped
    assert len({first, second, third, local}) == 4
    assert [one[:1] for one in (first, third, local)] == [b"\x04", b"\x06", b"\x00"]  # type: ignore[index]
    assert local == b"\x00"
    assert len(first or b"") == 12
    room = WaitingRoom.objects.get(event_id=event.id)
    assert networks.digest(bytes(room.network_key), b"\x04\xcb\x00\x71") == first  # type: ignore[arg-type]
    join_from(other, "guest", "203.0.113.7")
    assert bytes(QueueEntry.objects.get(event_id=other.id).network) != first  # type: ignore[arg-type]
    assert len(key_of(event)) == len(key_of(other)) == networks.KEY_BYTES
    assert key_of(event) != key_of(other)


def key_of(event: EventView) -> bytes:
    return bytes(WaitingRoom.objects.get(event_id=event.id).network_key or b"")


def test_an_event_without_a_report_records_nothing_and_does_not_evaluate_the_address() -> None:
    event = make_room()

    def fail() -> str:
        raise AssertionError("evaluated")

    assert networks.recorded_network(event, fail) is None
    assert Api().join("concert", visitor_id="v" * 22)
    join(event)
    assert (stored(), key()) == ([None, None], b"")


def test_api_page_and_link_record_the_network_also_without_a_waiting_room(api: Api, settings: Any) -> None:
    """The test client's address is loopback: fast path and site record the other class."""
    event = make_event(publishes_report=True)
    assert WaitingRoom.objects.get().state == "off"
    api.join("concert", visitor_id="v" * 22)
    assert Client().post(PAGE, {"visitor_id": "p" * 22}, headers={"sec-fetch-site": "same-origin"}).status_code == 303
    link = vip_links.address_of(vip_links.make_link(event.id, who="boss"), "concert")
    browser = Client(headers={"sec-fetch-site": "same-origin"})
    browser.force_login(User.objects.create_user("guest"))
    assert browser.post(link.removeprefix(settings.SITE_URL)).status_code == 303
    assert stored() == [networks.OTHER] * 3


def test_the_site_records_the_address_that_the_fast_path_has_determined(event: EventView) -> None:
    forwarded = {client_address.FORWARDED_BY_HEADER: client_address.forward_token(), "X-Forwarded-For": "203.0.113.7"}
    assert Api().post("/events/concert/queue", {"visitor_id": "v" * 22}, **forwarded).status_code == 201
    headers = {**forwarded, "sec-fetch-site": "same-origin"}
    assert Client().post(PAGE, {"visitor_id": "p" * 22}, headers=headers).status_code == 303
    assert stored() == [networks.digest(key() or b"", b"\x04\xcb\x00\x71")] * 2


def test_a_screened_join_records_its_network(event: EventView) -> None:
    network = networks.network_of("203.0.113.7")
    screening = Screening(score=1, reasons="a reason")
    outcomes = facade.join_many(
        [
            facade.JoinRequest(event, visitor("screened"), screening=screening, network=network),
            facade.JoinRequest(event, visitor("plain"), network=network),
            facade.JoinRequest(event, visitor("unrecorded")),
        ]
    )
    assert all(isinstance(one, facade.EntryView) for one in outcomes)
    assert stored() == [networks.digest(key() or b"", network)] * 2 + [None]


def test_joining_again_from_another_network_keeps_the_first(event: EventView) -> None:
    assert join_from(event, "one", "203.0.113.7") == join_from(event, "one", "203.0.114.7")
    assert stored() == [networks.digest(key() or b"", b"\x04\xcb\x00\x71")]


def test_recording_adds_no_statement_to_a_batch(event: EventView) -> None:
    join(event)

    def seen(network: bytes | None) -> list[str]:
        names: list[str] = []
        callers = [visitor(f"{network is None}-{number}") for number in range(20)]
        with sql.observe(lambda name, when: names.append(name) if when == "after" else None):
            facade.join_many([facade.JoinRequest(event, caller, network=network) for caller in callers])
        return names

    WaitingRoom.objects.update(state="paused")
    assert seen(None) == seen(networks.network_of("203.0.113.7")) == [
        "lock_rooms", "lock_visitor_entries", "read_clock", "lowest_waiting", "insert_entries", "save_room",
    ]  # fmt: skip


def test_a_join_after_the_deletion_of_the_key_records_nothing(event: EventView) -> None:
    """The request has its network; before the batch locks the room, the key is deleted and the digests are blanked."""
    join_from(event, "early", "203.0.113.7")
    network = networks.network_of("203.0.113.7")

    def delete() -> None:
        in_another_connection(partial(delete_and_blank, event))

    with run_at("lock_rooms", "before", delete):
        facade.join_many([facade.JoinRequest(event, visitor("late"), network=network)])
    assert (stored(), key()) == ([None, None], None)
    join_from(event, "later", "203.0.113.7")
    assert (stored(), key()) == ([None, None, None], None)
    assert networks.has_key(event.id) is False


def delete_and_blank(event: EventView) -> None:
    with transactions.write():
        networks.delete_key(event.id)
    networks.blank_digests(event.id)


def test_no_digest_is_written_after_its_key_was_deleted(event: EventView) -> None:
    """Joins and the deletion at the same moment: a join commits before the deletion, and its digest is blanked, or
    after it, and has none."""
    join_from(event, "first", "203.0.113.7")

    def act(number: int) -> None:
        if number == 5:
            delete_and_blank(event)
        else:
            join_from(event, number, "203.0.113.7")

    values(storm(12, act))
    assert set(stored()) == {None}
    assert len(stored()) == 12
    assert WaitingRoom.objects.get().networks_erased_at is not None


def test_concurrent_first_joins_share_one_key(event: EventView) -> None:
    values(storm(8, lambda number: join_from(event, number, "203.0.113.7")))
    assert set(stored()) == {networks.digest(key() or b"", b"\x04\xcb\x00\x71")}


def test_an_interrupted_blanking_is_continued_by_retention(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        join_from(event, number, "203.0.113.7")
    monkeypatch.setattr(networks, "BATCH_MAX", 2)
    with transactions.write():
        assert networks.delete_key(event.id) is True
    with transactions.write(), connection.cursor() as cursor:
        networks._blank_networks.rows(cursor, event_id=event.id, after="00000000-0000-0000-0000-000000000000", limit=2)
    assert sum(one is not None for one in stored()) == 3
    assert WaitingRoom.objects.get().networks_erased_at is None
    apply_retention()
    assert set(stored()) == {None}
    assert WaitingRoom.objects.get().networks_erased_at is not None


@pytest.mark.parametrize("change", [{"publishes_report": False}, {"days_ago": 91}])
def test_retention_deletes_keys_and_digests_that_no_report_will_need(event: EventView, change: dict[str, Any]) -> None:
    join_from(event, "one", "203.0.113.7")
    apply_retention()
    assert None not in stored()
    if "days_ago" in change:
        change = {"starts_at": clock.now() - timedelta(days=change["days_ago"])}
    Event.objects.update(**change)
    apply_retention()
    assert (stored(), key()) == ([None], None)


def test_the_erasure_of_an_entry_blanks_its_network_and_its_export_does_not_show_it(event: EventView) -> None:
    entry = join_from(event, "one", "203.0.113.7")
    other = join_from(event, "two", "203.0.113.7")
    exported = facade.export_entries([entry.id])
    assert exported[0]["is_network_recorded"] is True
    digest = stored()[0] or b""
    assert digest.hex() not in json.dumps(exported)
    with transactions.write():
        facade.erase_entries([entry.id])
    assert [one is None for one in stored()] == [True, False]
    assert not QueueEntry.objects.get(pk=other.id).visitor_id.startswith("erased")


def test_neither_admin_nor_proof_shows_a_digest_or_the_key(event: EventView) -> None:
    entry = join_from(event, "one", "203.0.113.7")
    secrets = [(stored()[0] or b""), key() or b""]
    browser = Client()
    browser.force_login(User.objects.create_superuser("boss"))
    pages = [
        browser.get(path)
        for path in (
            "/admin/queue/queueentry/",
            f"/admin/queue/queueentry/{entry.id}/change/",
            "/admin/queue/waitingroom/",
            f"/admin/queue/waitingroom/{event.id}/change/",
            "/api/events/concert/queue/proof",
            "/events/concert/fairness",
        )
    ]
    assert {page.status_code for page in pages} <= {200, 302}
    for page in pages:
        for secret in secrets:
            for written in (secret.hex(), repr(secret)[2:-1], str(memoryview(secret))):
                assert written not in page.content.decode()
        assert "network_key" not in page.content.decode()


@pytest.mark.slow
def test_the_migration_leaves_existing_rooms_ready_and_is_reversible() -> None:
    """A room and an entry from before the migration: nothing is recorded for them, and later joins are."""
    event = make_room(publishes_report=True)
    join(event)
    try:
        call_command("migrate", "queue", "0011_sign_ups", verbosity=0)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM information_schema.columns WHERE column_name IN ('network', 'network_key')"
            )
            assert cursor.fetchone() == (0,)
    finally:
        call_command("migrate", verbosity=0)  # All apps: migrations that depend on this one were reversed with it.
    assert (stored(), key()) == ([None], b"")
    join_from(event, "next", "203.0.113.7")
    assert stored() == [None, networks.digest(key() or b"", b"\x04\xcb\x00\x71")]
