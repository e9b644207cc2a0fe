"""Sign-up for a lobby's draw, and presales for confirmed accounts: one entry per person, and only for them."""

import json
import secrets
from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.db import IntegrityError, transaction
from django.test import Client

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.events.models import Event, OnSale
from apps.kernel import clock
from apps.kernel.rate_limits import mailboxes
from apps.queue import facade as queue
from apps.queue.entries import vip_links
from apps.queue.errors import AlreadySignedUp, NotOnSale, PresaleOnly
from apps.queue.fairness import stored
from apps.queue.identity import erasure
from apps.queue.models import Draw, QueueEntry, SignUp
from apps.reservations import facade as reservations
from tests.support.api_client import assert_problem
from tests.support.factories import assert_audit_clean, audit_breaches, make_event, make_hold_request
from tests.support.orders.sale import SAME_ORIGIN
from tests.support.queue.lobbies import drawn_numbers
from tests.support.queue.proven_rooms import verification_error
from tests.support.queue.sign_ups import (
    close_sign_up,
    make_account,
    make_accounts,
    make_draw,
    run_draw,
    try_to_join,
)
from tests.support.races import storm

pytestmark = pytest.mark.django_db(transaction=True)

FLOOR = {"ga_section": "floor", "ga_quantity": 1}


@pytest.mark.parametrize(
    ("address", "mailbox"),
    [
        ("Ann.Lee@Example.org", "ann.lee@example.org"),
        ("ann+fairgate@example.org", "ann@example.org"),
        ("a.n.n+1@gmail.com", "ann@gmail.com"),
        ("ann@googlemail.com", "ann@gmail.com"),
        ("+x@example.org", "+x@example.org"),
        ('"ann"@example.org', "ann@example.org"),
        ('"a\\n\\n+2"@example.org', "ann@example.org"),
        ("ann@B\u00dcCHER.example", "ann@xn--bcher-kva.example"),
        ("ann@xn--bcher-kva.example", "ann@xn--bcher-kva.example"),
        (f"ann@{'x' * 64}.example", f"ann@{'x' * 64}.example"),
        ("no address", "@no address"),
    ],
)
def test_one_mailbox_has_one_spelling(address: str, mailbox: str) -> None:
    assert mailboxes.mailbox_of(address) == mailbox


def test_only_confirmed_accounts_sign_up_and_each_person_once() -> None:
    event = make_draw()
    ann = make_account("ann.lee@gmail.com")
    entry = try_to_join(event, ann)
    assert try_to_join(event, ann).id == entry.id
    with pytest.raises(AlreadySignedUp):
        try_to_join(event, make_account("annlee+2@googlemail.com"))
    with pytest.raises(PresaleOnly):
        try_to_join(event, None, "a" * 32)
    with pytest.raises(PresaleOnly):
        try_to_join(event, make_account("bob@example.org", confirmed=False))
    assert (SignUp.objects.count(), QueueEntry.objects.count()) == (1, 1)
    row = SignUp.objects.get()
    assert b"ann" not in bytes(row.person)
    for same in ({"person": row.person}, {"person": b"another", "account_id": ann.pk}):
        with pytest.raises(IntegrityError, match="sign_up_once_per"), transaction.atomic():
            SignUp.objects.create(event_id=event.id, signed_up_at=clock.now(), **same)


def test_eight_accounts_of_one_mailbox_at_once_make_one_entry() -> None:
    """All insert a sign-up; the unique person lets one through. The others wait for its commit, and are refused."""
    event = make_draw()
    users = [make_account(f"ann+{number}@example.org") for number in range(8)]
    outcomes = storm(8, lambda number: try_to_join(event, users[number]))
    assert [type(outcome.error) for outcome in outcomes if outcome.error] == [AlreadySignedUp] * 7
    assert (SignUp.objects.count(), QueueEntry.objects.count()) == (1, 1)
    assert_audit_clean()


def test_control_without_the_constraint_on_persons_each_account_gets_an_entry(monkeypatch) -> None:
    """The same storm, with a digest that is never equal: the constraint has nothing to refuse."""
    monkeypatch.setattr(SignUp, "person_of", staticmethod(lambda address: secrets.token_bytes(32)))
    event = make_draw()
    users = [make_account(f"ann+{number}@example.org") for number in range(8)]
    outcomes = storm(8, lambda number: try_to_join(event, users[number]))
    assert [outcome.error for outcome in outcomes] == [None] * 8
    assert QueueEntry.objects.count() == 8


def test_eight_sign_ups_of_one_account_at_once_make_one_entry() -> None:
    event, ann = make_draw(), make_account("ann@example.org")
    outcomes = storm(8, lambda number: try_to_join(event, ann))
    assert len({outcome.value.id for outcome in outcomes}) == 1
    assert (SignUp.objects.count(), QueueEntry.objects.count()) == (1, 1)
    assert_audit_clean()


def test_sign_up_is_refused_before_the_lobby_opens_and_after_sign_up_closes() -> None:
    event, ann = make_draw(), make_account("ann@example.org")
    opens_at = clock.now() + timedelta(minutes=10)
    OnSale.objects.update(room_lobby_opens_at=opens_at)
    for changed in (events.get_event_by_id(event.id), close_sign_up(event)):
        with pytest.raises((NotOnSale, PresaleOnly)):
            try_to_join(changed, ann)
    Event.objects.update(status="canceled")
    with pytest.raises(NotOnSale):
        try_to_join(events.get_event_by_id(event.id), ann)
    assert not SignUp.objects.exists()


def test_the_drawn_positions_of_those_who_signed_up_are_verifiable_and_no_other_joins(api) -> None:
    event = make_draw()
    users = make_accounts(5)
    entries = [try_to_join(event, user) for user in users]
    event = close_sign_up(event)
    with pytest.raises(PresaleOnly, match="signed up for the draw"):
        try_to_join(event, make_account("late@example.org"))
    assert try_to_join(event, users[0]).id == entries[0].id
    event = run_draw(event)
    assert set(drawn_numbers(event)) == {entry.id for entry in entries}
    assert sorted(drawn_numbers(event).values()) == [1, 2, 3, 4, 5]
    assert verification_error(event.slug) == ""
    for user, entry in zip(users, entries, strict=True):
        again = try_to_join(event, user)
        assert (again.id, again.number) == (entry.id, drawn_numbers(event)[entry.id])
    with pytest.raises(PresaleOnly):
        try_to_join(event, make_account("later@example.org"))
    assert_problem(api.post(f"/events/{event.slug}/queue", {"visitor_id": "visitor-0001"}), 403, "presale-only")
    assert_audit_clean()


def test_the_commitment_names_the_sign_up_before_it_opens() -> None:
    event = make_draw()
    statement = json.loads(Draw.objects.get(event=event.id).statement)
    presale = event.policy.presale
    assert presale is not None
    assert presale.sign_up_closes_at is not None
    assert statement["sign_up"]["closes_at"] == clock.iso(presale.sign_up_closes_at)
    assert "one for each mailbox" in statement["sign_up"]["rule"]


def test_the_audit_and_the_verification_find_an_entry_without_a_sign_up() -> None:
    event = make_draw()
    users = make_accounts(2)
    for user in users:
        try_to_join(event, user)
    assert_audit_clean()
    assert stored.check(event.id) is None
    SignUp.objects.filter(account=users[0]).delete()
    (breach,) = audit_breaches()
    assert f"1 entries of account {users[0].pk} in the draw" in breach
    mismatch = stored.check(event.id)
    assert mismatch is not None
    assert "without a sign-up" in str(mismatch)


def test_a_changed_address_keeps_the_place_and_gives_no_second_one() -> None:
    event, ann = make_draw(), make_account("ann@example.org")
    entry = try_to_join(event, ann)
    accounts.User.objects.filter(pk=ann.pk).update(email="anna@example.org")
    EmailAddress.objects.filter(user=ann).update(email="anna@example.org")
    assert try_to_join(event, ann).id == entry.id
    EmailAddress.objects.filter(user=ann).update(verified=False)
    assert try_to_join(event, ann).id == entry.id
    with pytest.raises(AlreadySignedUp):
        try_to_join(event, make_account("ann@example.org", name="another"))
    assert SignUp.objects.count() == 1


def test_leaving_the_lobby_and_joining_again_keeps_one_entry_in_the_draw() -> None:
    event, ann = make_draw(), make_account("ann@example.org")
    entry = try_to_join(event, ann)
    QueueEntry.objects.filter(pk=entry.id).update(status="left", ended_at=clock.now())
    assert try_to_join(close_sign_up(event), ann).id == entry.id
    assert QueueEntry.objects.count() == 1


def test_a_person_who_missed_the_turn_can_join_again_at_the_end_and_others_cannot() -> None:
    event = make_draw()
    users = make_accounts(3)
    for user in users:
        try_to_join(event, user)
    event = run_draw(event)
    QueueEntry.objects.filter(account=users[0]).update(status="expired", ended_at=clock.now())
    assert try_to_join(event, users[0]).number == 4
    assert_audit_clean()


def test_a_browser_that_was_refused_signs_up_once_it_has_logged_in() -> None:
    event, ann = make_draw(), make_account("ann@example.org")
    browser = Client()

    def join() -> Any:
        return browser.post(f"/events/{event.slug}/join", {"visitor_id": "visitor-0001"}, headers=SAME_ORIGIN)

    refused = join()
    assert refused.status_code == 403
    assert f"/accounts/log-in?next=/events/{event.slug}/" in refused.content.decode()
    browser.force_login(ann)
    assert [join().status_code for _ in range(2)] == [303, 303]
    entry = QueueEntry.objects.get()
    assert (entry.account_id, entry.in_lobby, SignUp.objects.count()) == (ann.pk, True, 1)
    browser.logout()
    assert join().status_code == 403
    assert QueueEntry.objects.count() == 1


def test_the_api_signs_up_an_account(client: Client) -> None:
    event, ann = make_draw(), make_account("ann@example.org")
    client.force_login(ann)
    path = f"/api/events/{event.slug}/queue"
    answers = [
        client.post(path, json.dumps(body), content_type="application/json", headers=SAME_ORIGIN)
        for body in ({}, {"access_code": "x\x00" * 9_000}, {"access_code": 10**300})
    ]
    assert [answer.status_code for answer in answers] == [201, 422, 422]
    second = make_account("ann+2@example.org")
    client.force_login(second)
    answer = client.post(path, "{}", content_type="application/json", headers=SAME_ORIGIN)
    assert (answer.status_code, answer.json()["type"]) == (409, "already-signed-up")


def test_an_account_that_is_deleted_while_it_signs_up_is_refused() -> None:
    event, ann = make_draw(), make_account("ann@example.org")
    ghost = accounts.User(pk=ann.pk + 1_000)
    SignUp.objects.filter(account=ghost.pk).delete()
    with pytest.raises(PresaleOnly):
        try_to_join(event, ghost)
    assert not SignUp.objects.exists()


def test_a_presale_for_accounts_wants_a_confirmed_address_at_the_join_and_an_account_at_the_hold(api) -> None:
    event = make_event(general_admission=20, presale=events.Presale("account", clock.now() + timedelta(hours=1)))
    problem = assert_problem(api.post("/events/concert/queue", {"visitor_id": "visitor-0001"}), 403, "presale-only")
    assert problem["condition"] == "account"
    ann, bob = make_account("ann@example.org"), make_account("bob@example.org", confirmed=False)
    with pytest.raises(PresaleOnly):
        try_to_join(event, bob)
    entry = try_to_join(event, ann)
    assert reservations.hold_one(event, entry, FLOOR, "key").status == 201
    guest = queue.join(event, queue.Caller(visitor_id="g" * 32), access=queue.PresaleAccess())
    with pytest.raises(PresaleOnly):
        make_hold_request(event, guest, **FLOOR)
    link = vip_links.make_link(event.id, who="boss")
    vip = vip_links.redeem_link(
        event, vip_links.address_of(link, event.slug).rpartition("/")[2], queue.Caller(visitor_id="v" * 32)
    )
    assert reservations.hold_one(event, vip, FLOOR, "vip").status == 201
    OnSale.objects.update(opens_at=clock.now() - timedelta(hours=2), presale_until=clock.now() - timedelta(seconds=1))
    event = events.get_event_by_id(event.id)
    assert try_to_join(event, None, "n" * 32).is_ready
    assert_audit_clean()


def test_a_deactivated_account_has_no_confirmed_address() -> None:
    user = make_account("ann@example.org")
    assert accounts.confirmed_address(user.pk) == "ann@example.org"
    assert accounts.confirmed_address(None) == ""
    accounts.User.objects.filter(pk=user.pk).update(is_active=False)
    assert accounts.confirmed_address(user.pk) == ""


def test_the_pages_explain_the_sign_up() -> None:
    event = make_draw()
    page = Client().get(f"/events/{event.slug}/").content.decode()
    assert "Sign up for the draw</button>" in page
    assert "one entry per person" in page
    close_sign_up(event)
    page = Client().get(f"/events/{event.slug}/").content.decode()
    assert "Enter the lobby</button>" in page
    assert "Sign-up has closed" in page


def test_sign_ups_are_deleted_with_the_entries_of_the_event() -> None:
    event = make_draw()
    try_to_join(event, make_account("ann@example.org"))
    erasure.finish_event(event.id)
    assert not SignUp.objects.exists()


def test_a_person_exports_sign_ups_and_erases_those_of_past_events() -> None:
    event, ann = make_draw(), make_account("ann@example.org")
    try_to_join(event, ann)
    assert SignUp.objects.get().origin
    (found,) = erasure.export_sign_ups([ann.pk])
    assert found["event"] == event.slug
    assert erasure.events_of_sign_ups(ann.pk) == ["Concert"]
    now = clock.now()
    erasure.erase_sign_ups([ann.pk], now)
    assert SignUp.objects.get().origin == "", "it keeps the person from a second entry, without the network"
    Event.objects.update(starts_at=now - timedelta(days=2))
    erasure.erase_sign_ups([ann.pk], now)
    assert not SignUp.objects.exists()
