"""Changes of one account at the same moment: no request writes back what it read before another's change."""

import re
from collections.abc import Callable
from itertools import pairwise
from threading import Event, Semaphore
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.internal import flows as passkey_flows
from django.core import mail
from django.db import transaction
from django.test import Client

from apps.accounts.models import AccountChanged, SecurityEvent, User
from apps.accounts.pages import views
from apps.accounts.pages.forms import CHANGES_PER_HOUR_MAX
from apps.accounts.sessions import account_sessions
from apps.accounts.tokens import versions
from apps.kernel.outbox import facade as outbox
from tests.support.accounts.credentials import LOG_IN, PASSWORD
from tests.support.races import RIVAL_SECONDS_MAX, ConcurrentCall, in_another_connection

pytestmark = pytest.mark.django_db(transaction=True)

LogIn = Callable[[User], Client]
AtNextHash = Callable[[Callable[[], Any]], None]
CHANGE, NEW = "/accounts/password", "another of good length"
EVERYWHERE, RESET = "/accounts/log-out-everywhere", "/accounts/password/reset"
OWNERS = "one that the owner has chosen"


def change(browser: Client, old: str = PASSWORD, new: str = NEW) -> Any:
    return browser.post(CHANGE, {"oldpassword": old, "password1": new, "password2": new})


def ask_for_link(user: User) -> str:
    """Ask for a link that resets the password, and return it."""
    assert Client(headers={"sec-fetch-site": "same-origin"}).post(RESET, {"email": user.email}).status_code == 302
    mail.outbox.clear()
    outbox.deliver()
    found = re.search(rf"{RESET}/\S+", mail.outbox[0].body)
    assert found is not None
    return found[0]


def open_link(link: str) -> Callable[[], Any]:
    """Open the link in a browser of its own; return what sends the form with the owner's new password."""
    browser = Client(headers={"sec-fetch-site": "same-origin"})
    opened = browser.get(link)
    assert opened.status_code == 302, "the link works"
    return lambda: browser.post(opened.url, {"password1": OWNERS, "password2": OWNERS})


@pytest.fixture
def at_next_hash(monkeypatch: pytest.MonkeyPatch) -> AtNextHash:
    """Let a rival act once, when a request has hashed a new password and has not saved it yet."""
    hash_password = User.set_password

    def act_once(rival: Callable[[], Any]) -> None:
        def hash_and_let_rival_act(user: User, password: str | None) -> None:
            monkeypatch.setattr(User, "set_password", hash_password)
            user.set_password(password)
            rival()

        monkeypatch.setattr(User, "set_password", hash_and_let_rival_act)

    return act_once


def deactivate(user: User) -> None:
    user = User.objects.get(pk=user.pk)
    user.is_active = user.is_staff = user.is_superuser = False
    user.save()


def delete(user: User) -> None:
    User.objects.get(pk=user.pk).delete()


def reset(user: User) -> None:
    user = User.objects.get(pk=user.pk)
    user.set_password(OWNERS)
    user.save()


def move(user: User) -> None:
    user = User.objects.get(pk=user.pk)
    user.email = "new@example.org"
    user.save()


def log_out_everywhere(user: User) -> None:
    versions.raise_version(User.objects.get(pk=user.pk))


@pytest.mark.parametrize("rival", [deactivate, delete, reset, log_out_everywhere])
def test_a_password_change_under_way_does_not_undo_another_change(
    chief: User, log_in: LogIn, rival: Callable[[User], None], at_next_hash: AtNextHash
) -> None:
    """P: reads the account, hashes the new password
    Q: deactivates the account, deletes it, resets its password, ends its sessions; COMMIT
    P: refused. (Before, it wrote the whole account as it had read it, and its session stayed valid.)
    """
    browser = log_in(chief)
    at_next_hash(lambda: in_another_connection(lambda: rival(chief)))
    response = change(browser)
    assert (response.status_code, "Nothing was saved" in response.content.decode()) == (409, True)
    assert browser.get("/admin/").status_code == 302
    left = User.objects.filter(pk=chief.pk).first()
    assert (left is None) == (rival is delete)
    if left is not None:
        assert not left.check_password(NEW)
        assert left.check_password(OWNERS if rival is reset else PASSWORD)
        assert {left.is_active, left.is_staff, left.is_superuser} == {rival is not deactivate}
    assert not SecurityEvent.objects.filter(kind=SecurityEvent.Kind.PASSWORD_CHANGED).exists()


@pytest.mark.parametrize("rival", [deactivate, delete, reset, move])
def test_a_reset_under_way_does_not_undo_another_change(
    ann: User, rival: Callable[[User], None], at_next_hash: AtNextHash
) -> None:
    """P: opens the link that resets the password, hashes the new one
    Q: deactivates the account, deletes it, resets its password, gives it another address; COMMIT
    P: refused.
    """
    send = open_link(ask_for_link(ann))
    at_next_hash(lambda: in_another_connection(lambda: rival(ann)))
    response = send()
    assert (response.status_code, "Nothing was saved" in response.content.decode()) == (409, True)
    left = User.objects.filter(pk=ann.pk).first()
    assert (left is None) == (rival is delete)
    if left is not None:
        assert left.check_password(OWNERS if rival is reset else PASSWORD)
        assert (left.is_active, left.email == ann.email) == (rival is not deactivate, rival is not move)
    assert not SecurityEvent.objects.filter(kind=SecurityEvent.Kind.PASSWORD_RESET).exists()


def log_in_again(thief: Client, user: User) -> int:
    return thief.post(LOG_IN, {"username": user.username, "password": PASSWORD}).status_code


def ask_for_another_address(thief: Client, user: User) -> int:
    count = EmailAddress.objects.count()
    return thief.post("/accounts/email", {"email": f"thief{count}@example.org"}).status_code


def end_all_sessions(thief: Client, user: User) -> int:
    return thief.post(EVERYWHERE).status_code


@pytest.mark.parametrize("act", [log_in_again, ask_for_another_address, end_all_sessions])
def test_a_thief_of_the_password_cannot_keep_the_owner_from_resetting_it(
    ann: User, log_in: LogIn, act: Callable[[Client, User], int], at_next_hash: AtNextHash
) -> None:
    """Owner: asks for a link; opens it; sends the form, which hashes; COMMIT
    Thief: acts at each semicolon. (Before, each act ended the link, or the reset was refused.)
    """
    browsers = [log_in(ann)]

    def steal() -> None:
        browsers.append(Client(headers={"sec-fetch-site": "same-origin"}) if act is log_in_again else browsers[0])
        assert in_another_connection(lambda: act(browsers[-1], ann)) == 302

    link = ask_for_link(ann)
    steal()
    send = open_link(link)
    steal()
    at_next_hash(steal)
    assert send().url == f"{RESET}/done"
    assert len(browsers) == 4
    assert [browser.get("/accounts/").status_code for browser in browsers] == [302] * 4, "all sessions have ended"
    ann.refresh_from_db()
    assert ann.check_password(OWNERS)
    assert not EmailAddress.objects.filter(user=ann).exclude(email=ann.email).exists()


def test_a_reset_wins_over_a_thief_who_logs_out_everywhere_without_end(
    ann: User, log_in: LogIn, at_next_hash: AtNextHash, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thief: logs out everywhere, again and again, while the owner's reset hashes and saves."""
    monkeypatch.setattr(account_sessions, "ENDS_OF_OTHERS_PER_HOUR_MAX", 10_000)
    thief, has_ended, acts = log_in(ann), Event(), Semaphore(0)

    def steal() -> None:
        while not has_ended.is_set():
            end_all_sessions(thief, ann)
            acts.release()

    send = open_link(ask_for_link(ann))
    rival = ConcurrentCall(steal)
    at_next_hash(lambda: [acts.acquire(timeout=RIVAL_SECONDS_MAX) for _ in range(acts._value + 2)])
    try:
        response = send()
    finally:
        has_ended.set()
    rival.result()
    assert (response.status_code, response.url) == (302, f"{RESET}/done")
    assert thief.get("/accounts/").status_code == 302
    ann.refresh_from_db()
    assert ann.check_password(OWNERS)
    assert ann.token_version > 2


def test_a_session_that_has_been_ended_does_not_end_others(
    ann: User, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thief: the session is found valid
    Owner: logs out everywhere; COMMIT
    Thief: refused. (Before, it ended the owner's session and got a valid one.)
    """
    thief, end_others = log_in(ann), account_sessions.end_others

    def let_owner_end(*args: Any) -> bool:
        in_another_connection(lambda: log_out_everywhere(ann))
        return end_others(*args)

    monkeypatch.setattr(views.account_sessions, "end_others", let_owner_end)
    assert thief.post(EVERYWHERE).status_code == 409
    assert thief.get("/accounts/").status_code == 302
    ann.refresh_from_db()
    assert ann.token_version == 1
    assert not SecurityEvent.objects.filter(kind=SecurityEvent.Kind.LOGGED_OUT_EVERYWHERE).exists()


def test_a_password_change_does_not_take_the_version_of_a_later_log_out(
    ann: User, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P: saves the new password, which raises the version
    Q: logs out everywhere: waits for P. (Before, it committed here, and P's session got its version.)
    P: reads the version for its session; COMMIT
    """
    browser, refresh = log_in(ann), User.refresh_from_db
    rivals: list[ConcurrentCall] = []

    def let_rival_act(user: User, *args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(User, "refresh_from_db", refresh)
        rivals.append(ConcurrentCall(lambda: log_out_everywhere(ann)).wait_until_blocked())
        user.refresh_from_db(*args, **kwargs)

    monkeypatch.setattr(User, "refresh_from_db", let_rival_act)
    assert change(browser).status_code == 302
    rivals[0].result()
    assert browser.get("/accounts/").status_code == 302


def test_an_account_is_saved_without_the_fields_that_were_not_changed(ann: User) -> None:
    read, other = User.objects.get(pk=ann.pk), User.objects.get(pk=ann.pk)
    other.is_staff = True
    other.save()
    read.first_name = "Ann"
    read.save()
    read.last_name = "Other"
    read.refresh_from_db(fields=["is_staff"])
    read.save()
    ann.refresh_from_db()
    assert (ann.is_staff, ann.first_name, ann.last_name) == (True, "Ann", "Other")


def test_an_account_that_was_created_in_bulk_is_saved_as_a_whole(db: None) -> None:
    (user,) = User.objects.bulk_create([User(username="clerk")])
    user.first_name = "Ann"
    user.save()
    assert User.objects.get(pk=user.pk).first_name == "Ann"


def test_a_deleted_account_is_not_stored_again(ann: User) -> None:
    read = User.objects.get(pk=ann.pk)
    delete(ann)
    read.first_name = "Ann"
    with pytest.raises(AccountChanged):
        read.save()
    assert not User.objects.exists()


def test_a_password_is_saved_once_more_by_the_same_request_but_not_by_an_older_one(ann: User) -> None:
    read, older = User.objects.get(pk=ann.pk), User.objects.get(pk=ann.pk)
    for password in (NEW, OWNERS):
        read.set_password(password)
        read.save()
    older.set_password(PASSWORD)
    with pytest.raises(AccountChanged):
        older.save()
    ann.refresh_from_db()
    assert ann.check_password(OWNERS)


def test_the_links_to_reset_a_password_cannot_all_be_ended_by_changing_it(ann: User, log_in: LogIn) -> None:
    browser = log_in(ann)
    passwords = [PASSWORD, *(f"{NEW} {number}" for number in range(CHANGES_PER_HOUR_MAX + 1))]
    statuses = [change(browser, old, new).status_code for old, new in pairwise(passwords)]
    assert statuses == [302] * CHANGES_PER_HOUR_MAX + [200]
    ann.refresh_from_db()
    assert ann.check_password(passwords[-2])
    refused = change(browser, passwords[-2], passwords[-1])
    assert "Wait an hour" in refused.content.decode()


def test_a_thief_cannot_end_each_session_of_the_owner(ann: User, log_in: LogIn) -> None:
    thief = log_in(ann)
    for _ in range(account_sessions.ENDS_OF_OTHERS_PER_HOUR_MAX):
        owner = log_in(ann)
        assert thief.post(EVERYWHERE).status_code == 302
        assert owner.get("/accounts/").status_code == 302
    owner = log_in(ann)
    assert "Wait an hour" in thief.post(EVERYWHERE, follow=True).content.decode()
    assert owner.get("/accounts/").status_code == 200
    assert "Wait an hour" in owner.post(EVERYWHERE, follow=True).content.decode()


def test_a_passkey_that_is_removed_while_it_is_renamed_stays_removed(
    ann: User, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P: reads the passkey to rename it
    Q: removes it: waits for P. (Before: removed it, and P stored it again.)
    P: COMMIT
    """
    browser = log_in(ann)
    passkey = Authenticator.objects.create(
        user=ann, type=Authenticator.Type.WEBAUTHN, data={"name": "key", "credential": {}}
    )
    rename = passkey_flows.rename_authenticator
    rivals: list[ConcurrentCall] = []

    def let_rival_remove(*args: Any) -> None:
        rivals.append(ConcurrentCall(lambda: Authenticator.objects.filter(pk=passkey.pk).delete()).wait_until_blocked())
        rename(*args)

    monkeypatch.setattr(passkey_flows, "rename_authenticator", let_rival_remove)
    path = f"/accounts/second-factor/passkeys/{passkey.pk}/rename"
    assert browser.post(path, {"name": "renamed"}).status_code == 302
    rivals[0].result()
    assert not Authenticator.objects.exists()
    with transaction.atomic():
        assert browser.post(path, {"name": "again"}).status_code == 404
