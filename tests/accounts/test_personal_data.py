"""The account's page: a person downloads everything that is stored, and erases the account."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts import personal_data, registries, security_log
from apps.accounts.models import AccountChanged, SecurityEvent, User
from apps.accounts.pages import personal_data as data_pages
from apps.events.facade import EventView
from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.models import Invoice, Order
from apps.orders.privacy import erasure
from apps.queue.models import QueueEntry
from tests.support.accounts.credentials import LOG_IN, PASSWORD, AuthenticatorApp
from tests.support.api_client import Api
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.orders.sale import buy, deliver_outbox, place_order
from tests.support.orders.transfers import accepted, sold_order
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)

LogIn = Callable[[User], Client]
DATA, ERASE = "/accounts/data.json", "/accounts/erase"
SURE = {"is_sure": "on"}


def ends(order: Order) -> None:
    Event.objects.filter(pk=order.event_id).update(starts_at=clock.now() - timedelta(days=2))


def everything() -> str:
    """Return all rows as text, without invoices, and without messages, which are deleted after 7 days."""
    with connection.cursor() as cursor:
        texts = []
        for table in connection.introspection.table_names(cursor):
            if table not in ("orders_invoice", OutboxMessage._meta.db_table):
                cursor.execute(f'SELECT string_agg(row_to_json(one)::text, chr(10)) FROM "{table}" AS one')
                texts.append(cursor.fetchone()[0] or "")
    return "\n".join(texts)


def forget_log_in(browser: Client) -> None:
    """Make the browser's log-in too old for what needs a recent one."""
    session = browser.session
    session["account_authentication_methods"] = []
    session.save()


def test_a_process_makes_one_file_at_a_time(ann: User, log_in: LogIn) -> None:
    browser = log_in(ann)
    with data_pages._making:
        assert browser.get(DATA).status_code == 503
    assert browser.get(DATA).status_code == 200


def test_an_account_gets_a_few_files_in_a_minute(ann: User, log_in: LogIn) -> None:
    """A process makes one file at a time: an account with many orders would keep others from getting theirs."""
    browser = log_in(ann)
    assert [browser.get(DATA, REMOTE_ADDR="203.0.113.7").status_code for _ in range(4)] == [200, 200, 200, 429]


def test_the_download_has_everything_about_the_account_and_its_confirmed_address(
    ann: User, log_in: LogIn, app_of: Callable[[User], AuthenticatorApp]
) -> None:
    event = make_event()
    own = buy(hold(event, join(event, account_id=ann.pk), seats=["hall-A-1"]), email="office@example.org", name="Ann")
    guest = buy(hold(event, seats=["hall-A-2"]), email=ann.email, name="Ann")
    other = buy(hold(event, seats=["hall-A-3"]), email="bob@example.org", name="Bob")
    browser = log_in(ann)
    app_of(ann)
    response = browser.get(DATA)
    assert response["Content-Disposition"] == 'attachment; filename="fairgate-data.json"'
    assert "no-store" in response["Cache-Control"]
    found = json.loads(response.content)
    assert [order["number"] for order in found["orders"]] == [own.number, guest.number]
    (account,) = found["accounts"]
    assert account["email_addresses"] == [{"email": ann.email, "verified": True, "primary": True}]
    assert [factor["kind"] for factor in account["second_factors"]] == ["TOTP Authenticator"]
    assert "logged_in" in [entry["kind"] for entry in account["security_log"]]
    assert SecurityEvent.objects.filter(kind="data_downloaded", account=ann).count() == 1
    deliver_outbox()
    assert "Your data was downloaded" in [letter.subject for letter in mail.outbox if letter.to == [ann.email]]
    text = response.content.decode()
    assert other.number not in text
    assert ann.password not in text
    assert Authenticator.objects.get().data["secret"] not in text


@pytest.mark.parametrize("is_renamed", [False, True])
def test_the_download_has_no_entry_of_an_account_that_had_the_name_before(is_renamed: bool) -> None:
    """Its owner gave up the address, and another person signed up with it or changed to it."""
    name, now = "office@example.org", clock.now()
    before = User.objects.create_user("new@example.org", email="new@example.org")
    joined_at = now - timedelta(days=2) if is_renamed else now - timedelta(hours=1)
    after = User.objects.create_user(name, email=name, date_joined=joined_at)
    log = [
        SecurityEvent(kind="logged_in", account=before, name=name, at=now - timedelta(days=1), detail="before"),
        SecurityEvent(kind="log_in_failed", name=name, at=now - timedelta(days=1), detail="before"),
        SecurityEvent(kind="log_in_failed", name=name, at=now - timedelta(minutes=1), detail="after"),
    ]
    if is_renamed:
        changed_at = now - timedelta(minutes=2)
        log.append(SecurityEvent(kind="email_changed", account=after, name=name, at=changed_at, detail="after"))
    SecurityEvent.objects.bulk_create(log)
    entries = personal_data.export_account(after.pk)["security_log"]
    assert {entry["detail"] for entry in entries} == {"after"}
    assert len(entries) == 1 + is_renamed


def test_an_address_that_is_not_confirmed_shows_no_orders(ann: User, log_in: LogIn) -> None:
    """A stranger signs up with another person's address, and gets neither the orders nor their erasure."""
    guest = buy(hold(make_event(), seats=["hall-A-2"]), email=ann.email, name="Ann")
    EmailAddress.objects.update(verified=False)
    browser = log_in(ann)
    assert json.loads(browser.get(DATA).content)["orders"] == []
    ends(guest)
    assert "Your account was erased" in browser.post(ERASE, SURE).content.decode()
    guest.refresh_from_db()
    assert guest.email == ann.username


@pytest.mark.parametrize("path", [DATA, ERASE])
def test_both_need_a_recent_log_in(ann: User, log_in: LogIn, path: str, settings: Any) -> None:
    settings.REAUTHENTICATION_SECONDS = 900
    assert Client().get(path).url == f"{LOG_IN}?next={path}"
    browser = log_in(ann)
    assert browser.get(path).status_code == 200
    forget_log_in(browser)
    assert browser.get(path).url.startswith("/accounts/confirm")
    browser.post(ERASE, SURE)
    ann.refresh_from_db()
    assert ann.is_active


def test_erasing_closes_the_account_and_erases_its_orders(
    ann: User, log_in: LogIn, chief: User, app_of: Callable[[User], AuthenticatorApp]
) -> None:
    event = make_event()
    order = buy(hold(event, join(event, account_id=ann.pk), seats=["hall-A-1"]), email=ann.email, name="Ann Lee")
    tokens = Api().post("/auth/token", {"username": ann.username, "password": PASSWORD}).json()
    deliver_outbox()
    ends(order)
    browser, elsewhere, ann_name = log_in(ann), log_in(ann), ann.username
    app_of(ann)
    Client().post(LOG_IN, {"username": ann.username, "password": "wrong"})
    staff_action, read = security_log.Kind.STAFF_ACTION, security_log.Kind.PERSONAL_DATA_READ
    security_log.record(None, staff_action, chief, detail=f"changed: user {ann.username}")
    security_log.record(None, staff_action, chief, detail=f"changed: user jo{ann.username}")
    security_log.record(None, read, chief, detail="/admin/orders/order/?q=Ann%40example.org&p=1")
    assert ann.email in everything()
    refused = browser.post(ERASE, {})
    assert (refused.status_code, ann.is_active) == (200, True)
    done = browser.post(ERASE, SURE)
    page = done.content.decode()
    assert done.status_code == 200
    assert f"until the end of {Invoice.objects.get().year + 10}" in page
    assert not browser.get("/accounts/").wsgi_request.user.is_authenticated
    assert not elsewhere.get("/accounts/").wsgi_request.user.is_authenticated
    text = everything()
    assert f"jo{ann.email}" in text, "another account's entry stays"
    assert ann.email not in text.replace(f"jo{ann.email}", "")
    assert "Ann Lee" not in text
    ann.refresh_from_db()
    assert (ann.username, ann.email, ann.is_active) == (f"erased-{ann.pk}", "", False)
    assert not Authenticator.objects.exists()
    details = SecurityEvent.objects.exclude(detail="").order_by("pk").values_list("detail", flat=True)
    assert list(details) == [
        "changed: user erased",
        f"changed: user jo{ann_name}",
        "/admin/orders/order/?q=erased&p=1",
    ]
    assert Api().get("/orders", token=tokens["access"]).status_code == 401
    refused = Api().post("/auth/token", {"username": "ann@example.org", "password": PASSWORD})
    assert refused.status_code == 401
    order.refresh_from_db()
    assert order.is_erased
    again = Client(headers={"sec-fetch-site": "same-origin"})
    signed_up = again.post("/accounts/sign-up", {"username": "ann@example.org", "password": PASSWORD})
    assert signed_up.status_code == 302, "the address can be used for a new account"
    assert json.loads(again.get(DATA).content)["orders"] == []
    assert_audit_clean()


def test_an_erasure_leaves_the_log_of_another_account_whose_address_was_stored(
    ann: User, chief: User, log_in: LogIn
) -> None:
    """Anyone can store ann's address as the new address of an own account; she has to confirm it, but not here."""
    log_in(ann)
    Client().post(LOG_IN, {"username": ann.username, "password": "wrong"})
    security_log.record(None, security_log.Kind.STAFF_ACTION, chief, detail=f"changed: user {ann.username}")
    before = list(SecurityEvent.objects.order_by("pk").values())
    stranger = User.objects.create_user("stranger@example.org", password=PASSWORD)
    EmailAddress.objects.create(user=stranger, email=stranger.email, verified=True, primary=True)
    browser = log_in(stranger)
    browser.post("/accounts/email", {"email": ann.email})
    assert EmailAddress.objects.filter(user=stranger, email=ann.email, verified=False).exists()
    browser.post(ERASE, SURE)
    stranger.refresh_from_db()
    assert stranger.erased_at is not None
    assert list(SecurityEvent.objects.filter(pk__lte=before[-1]["id"]).order_by("pk").values()) == before


def test_the_log_forgets_a_name_that_was_never_confirmed(log_in: LogIn) -> None:
    bob = User.objects.create_user("bob@example.org", password=PASSWORD)
    Client().post(LOG_IN, {"username": bob.username, "password": "wrong"})
    log_in(bob)
    assert SecurityEvent.objects.filter(name=bob.username).count() == 2
    personal_data.erase_account(bob.pk)
    assert not SecurityEvent.objects.filter(name=bob.username).exists()


def test_an_account_whose_data_is_needed_is_not_erased(ann: User, log_in: LogIn) -> None:
    event = make_event()
    order = buy(hold(event, join(event, account_id=ann.pk), seats=["hall-A-1"]), email=ann.email)
    later = make_event("later")
    join(later, account_id=ann.pk)
    browser = log_in(ann)
    page = browser.get(ERASE).content.decode()
    assert f"Order {order.number} is needed for Concert until " in page
    assert "The place in line for Later is still in use." in page
    assert browser.post(ERASE, SURE).status_code == 409
    ann.refresh_from_db()
    order.refresh_from_db()
    assert (ann.is_active, order.email) == (True, ann.email)


@pytest.mark.parametrize("is_paid", [True, False], ids=["paid", "unpaid"])
def test_a_guests_order_with_the_address_does_not_prevent_it(ann: User, log_in: LogIn, *, is_paid: bool) -> None:
    """A guest may type any address. The order and the guest's place in line are erased when they are not needed."""
    event = make_event()
    held = hold(event, join(event, visitor_id="a-browser-of-a-stranger"), seats=["hall-A-1"])
    order = (buy if is_paid else place_order)(held, email=ann.email, name="Ann Lee")
    browser = log_in(ann)
    assert f"Order {order.number} is " in browser.get(ERASE).content.decode()
    page = browser.post(ERASE, SURE)
    assert page.status_code == 200
    assert "Your account was closed" in page.content.decode()
    assert f"Order {order.number} is " in page.content.decode()
    ann.refresh_from_db()
    assert ann.erased_at is not None
    outbox.deliver()
    order.refresh_from_db()
    assert order.email == "ann@example.org", "it is still needed"
    ends(order)
    OutboxMessage.objects.filter(topic=topics.ERASE_PERSON).update(available_at=clock.now())
    deliver_outbox()
    order.refresh_from_db()
    assert order.is_erased
    assert "Ann Lee" not in everything()
    assert OutboxMessage.objects.get(topic=topics.ERASE_PERSON).done_at is not None
    assert_audit_clean()


def leaves_the_line(user: User, event: EventView, times: int) -> None:
    """Each join and leave of an account is another entry; in the lobby it has no number."""
    now = clock.now()
    QueueEntry.objects.bulk_create(
        QueueEntry(event_id=event.id, in_lobby=True, account=user, status="left", joined_at=now, ended_at=now)
        for _ in range(times)
    )


def test_the_work_of_the_request_does_not_grow_with_the_data(ann: User, log_in: LogIn) -> None:
    """Otherwise one account that joins and leaves all day occupies a thread of the site for minutes."""
    leaves_the_line(ann, make_event(), 3 * erasure.AT_ONCE_MAX)
    browser = log_in(ann)
    with CaptureQueriesContext(connection) as few:
        assert browser.post(ERASE, SURE).status_code == 200
    bob = User.objects.create_user("bob@example.org", password=PASSWORD)
    EmailAddress.objects.create(user=bob, email=bob.email, verified=True, primary=True)
    leaves_the_line(bob, make_event("later"), 12 * erasure.AT_ONCE_MAX)
    browser = log_in(bob)
    with CaptureQueriesContext(connection) as many:
        assert browser.post(ERASE, SURE).status_code == 200
    assert len(many) == len(few)


def test_an_account_with_much_data_is_closed_at_once_and_the_rest_is_erased_soon(ann: User, log_in: LogIn) -> None:
    event = make_event()
    order = buy(hold(event, seats=["hall-A-1"]), email=ann.email, name="Ann Lee")
    deliver_outbox()
    ends(order)
    leaves_the_line(ann, event, erasure.AT_ONCE_MAX)
    browser = log_in(ann)
    page = browser.post(ERASE, SURE).content.decode()
    assert "Your account was closed" in page
    assert "are being erased now" in page
    assert "Your data was erased" not in page
    ann.refresh_from_db()
    assert (ann.username, ann.email, ann.is_active) == (f"erased-{ann.pk}", "", False)
    assert not browser.get("/accounts/").wsgi_request.user.is_authenticated
    again = User.objects.create_user("ann@example.org", password=PASSWORD)
    EmailAddress.objects.create(user=again, email=again.email, verified=True, primary=True)
    new = buy(hold(event, seats=["hall-A-2"]), email=again.email, name="Ann New")
    deliver_outbox()
    about_account = [letter.subject for letter in mail.outbox if letter.subject.startswith("Your account")]
    assert about_account == ["Your account was closed"]
    assert not QueueEntry.objects.filter(account=ann).exists()
    assert "Ann Lee" not in everything()
    order.refresh_from_db()
    new.refresh_from_db()
    assert (order.is_erased, new.email) == (True, "ann@example.org"), "the later order is a new person's"
    assert_audit_clean()


def test_a_second_delivery_erases_nothing_more(ann: User, log_in: LogIn) -> None:
    leaves_the_line(ann, make_event(), erasure.AT_ONCE_MAX + 1)
    log_in(ann).post(ERASE, SURE)
    deliver_outbox()
    before = everything()
    OutboxMessage.objects.filter(topic=topics.ERASE_PERSON).update(done_at=None, available_at=clock.now())
    deliver_outbox()
    assert OutboxMessage.objects.get(topic=topics.ERASE_PERSON).done_at is not None
    assert everything() == before


def test_what_has_become_needed_is_erased_later(ann: User, log_in: LogIn) -> None:
    """A join was under way while the account was closed."""
    event = make_event()
    leaves_the_line(ann, event, erasure.AT_ONCE_MAX + 1)
    log_in(ann).post(ERASE, SURE)
    join(event, account_id=ann.pk)
    outbox.deliver()
    message = OutboxMessage.objects.get(topic=topics.ERASE_PERSON)
    assert (message.done_at, message.attempts) == (None, 0)
    assert message.available_at > clock.now() + timedelta(minutes=50)
    assert QueueEntry.objects.filter(account=ann).count() == 1
    Event.objects.filter(pk=event.id).update(starts_at=clock.now() - timedelta(days=2))
    OutboxMessage.objects.filter(pk=message.pk).update(available_at=clock.now())
    deliver_outbox()
    assert not QueueEntry.objects.filter(account=ann).exists()
    assert OutboxMessage.objects.get(pk=message.pk).done_at is not None


def test_an_interrupted_erasure_continues(ann: User, log_in: LogIn, monkeypatch: pytest.MonkeyPatch) -> None:
    leaves_the_line(ann, make_event(), erasure.AT_ONCE_MAX + 1)
    log_in(ann).post(ERASE, SURE)
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "prolong", lambda message: False)
        outbox.deliver(2)
    assert QueueEntry.objects.filter(account=ann).count() == erasure.AT_ONCE_MAX + 1 - erasure.BATCH_MAX
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now())
    deliver_outbox()
    assert not QueueEntry.objects.filter(account=ann).exists()


def test_much_data_does_not_hide_what_is_needed(ann: User, log_in: LogIn) -> None:
    event = make_event()
    leaves_the_line(ann, event, erasure.AT_ONCE_MAX + 1)
    join(event, account_id=ann.pk)
    refused = log_in(ann).post(ERASE, SURE)
    assert refused.status_code == 409
    assert "The place in line for Concert is still in use." in refused.content.decode()
    ann.refresh_from_db()
    assert ann.is_active
    assert not OutboxMessage.objects.filter(topic=topics.ERASE_PERSON).exists()


def test_staff_do_not_erase_their_accounts(chief: User, log_in: LogIn) -> None:
    browser = log_in(chief)
    assert "an administrator closes it" in browser.post(ERASE, SURE).content.decode()
    chief.refresh_from_db()
    assert chief.is_active


def test_the_command_erases_the_account_once_nothing_needs_it(ann: User, capsys: Any) -> None:
    chief = User.objects.create_superuser("chief", "chief@example.org", password=PASSWORD)
    order = buy(hold(make_event(), seats=["hall-A-1"]), email=ann.email)
    deliver_outbox()
    ends(order)
    call_command("person", ann.email, "erase", "--yes")
    assert f"erased: account {ann.pk}" in capsys.readouterr().out
    ann.refresh_from_db()
    assert not ann.is_active
    with pytest.raises(CommandError, match="belongs to staff"):
        call_command("person", chief.email, "erase", "--yes")
    chief.refresh_from_db()
    assert chief.is_active


def test_orders_of_another_account_with_a_shared_address_stay_with_that_account(ann: User, log_in: LogIn) -> None:
    """Two people share a mailbox, and one of them has confirmed it. An operator who has checked the identity of the
    mailbox's owner can erase both."""
    event = make_event()
    bob = User.objects.create_user("bob@example.org", password=PASSWORD)
    order = buy(hold(event, join(event, account_id=bob.pk), seats=["hall-A-1"]), email=ann.email, name="Bob")
    browser = log_in(ann)
    assert json.loads(browser.get(DATA).content)["orders"] == []
    assert browser.post(ERASE, SURE).status_code == 200
    order.refresh_from_db()
    assert (order.account_id, order.email, order.name) == (bob.pk, "ann@example.org", "Bob")
    ends(order)
    call_command("person", "ann@example.org", "erase", "--yes")
    order.refresh_from_db()
    assert order.is_erased
    bob.refresh_from_db()
    assert bob.is_active
    assert_audit_clean()


def test_a_ticket_from_another_person_is_needed_until_its_event_is_over(ann: User, log_in: LogIn) -> None:
    order = sold_order()
    accepted(order, email=ann.email)
    browser = log_in(ann)
    refused = browser.post(ERASE, SURE)
    page = refused.content.decode()
    assert (refused.status_code, order.number in page) == (409, False)
    assert "A ticket from another person is needed for Concert until " in page
    ends(order)
    assert browser.post(ERASE, SURE).status_code == 200
    ann.refresh_from_db()
    assert ann.erased_at is not None
    assert "Grace Friend" not in everything()
    order.refresh_from_db()
    assert not order.is_erased


def test_an_erased_account_cannot_be_recovered(ann: User, log_in: LogIn) -> None:
    """Neither by a link that was mailed before, nor by a new one, nor by a confirmation of a new address."""
    for path, form in (
        ("/accounts/password/reset", {"email": ann.email}),
        ("/accounts/email", {"email": "new@example.org"}),
    ):
        browser = log_in(ann)
        assert browser.post(path, form).status_code == 302
    deliver_outbox()
    bodies = [letter.body for letter in mail.outbox]
    (reset,) = [line for body in bodies for line in body.splitlines() if "/password/reset/" in line]
    (confirm,) = [line for body in bodies for line in body.splitlines() if "/email/confirm/" in line]
    assert browser.post(ERASE, SURE).status_code == 200
    mail.outbox.clear()
    other = Client(headers={"sec-fetch-site": "same-origin"})
    for link in (reset, confirm):
        page = other.get(urlsplit(link).path, follow=True)
        other.post(
            page.request["PATH_INFO"], {"password1": "another long password", "password2": "another long password"}
        )
    other.post("/accounts/password/reset", {"email": "ann@example.org"})
    deliver_outbox()
    assert "/password/reset/" not in "".join(letter.body for letter in mail.outbox)
    ann.refresh_from_db()
    assert (ann.is_active, ann.has_usable_password(), ann.email) == (False, False, "")
    assert not EmailAddress.objects.exists()


def test_a_request_that_read_the_account_before_its_erasure_writes_nothing_back(ann: User) -> None:
    """A request reads the account; the erasure commits; the request saves the account, and adds an address."""
    stale = User.objects.get(pk=ann.pk)
    personal_data.erase_account(ann.pk)
    stale.first_name = "Ann"
    stale.save()
    stale.set_password("another long password")
    with pytest.raises(AccountChanged):
        stale.save()
    EmailAddress.objects.create(user=stale, email="new@example.org")
    found = User.objects.get(pk=ann.pk)
    assert (found.username, found.email, found.first_name) == (f"erased-{ann.pk}", "", "")
    assert not found.is_active
    assert not found.has_usable_password()
    assert personal_data.delete_leftovers() == 1
    assert not EmailAddress.objects.exists()


def test_two_erasures_at_once_erase_once(ann: User, log_in: LogIn) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), email=ann.email)
    deliver_outbox()
    ends(order)
    browsers = [log_in(ann) for _ in range(4)]
    responses = values(storm(4, lambda number: browsers[number].post(ERASE, SURE)))
    # The sessions of the later ones may have ended with the first.
    assert {response.status_code for response in responses} <= {200, 302}
    assert 200 in {response.status_code for response in responses}
    assert SecurityEvent.objects.filter(kind="account_erased").count() == 1
    order.refresh_from_db()
    assert order.is_erased
    assert_audit_clean()


def test_an_order_placed_during_the_erasure_stays_whole(ann: User) -> None:
    """Each checkout is of the account that is erased at the same moment: either the erasure sees the order and leaves
    the account, or the order comes later and stays as it is."""
    event = make_event()
    held = hold(event, join(event, account_id=ann.pk), seats=["hall-A-1"])
    source = registries.get_personal_data()

    def act(number: int) -> object:
        return place_order(held, email=ann.email, name="Ann") if number == 0 else source.erase(ann.pk)

    values(storm(4, act))
    order = Order.objects.get()
    assert (order.email, order.name, order.account_id) == ("ann@example.org", "Ann", ann.pk)
    ann.refresh_from_db()
    assert ann.is_active, "the visitor's place in line was in use all the time"
    assert source.find_needed(ann.pk)[0] == f"Order {order.number} is still being paid."
    assert_audit_clean()
