"""Changes of one account at the same moment: no request writes back what it read before another's change."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.internal import flows as passkey_flows
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.test import Client

from apps.accounts.models import AccountChanged, SecurityEvent, User
from apps.accounts.pages.forms import CHANGES_PER_HOUR_MAX
from apps.accounts.tokens import versions
from tests.support.accounts.credentials import PASSWORD
from tests.support.races import ConcurrentCall, in_another_connection

pytestmark = pytest.mark.django_db(transaction=True)

LogIn = Callable[[User], Client]
CHANGE, NEW = "/accounts/password", "another of good length"
OWNERS = "one that the owner has chosen"


def change(browser: Client, old: str = PASSWORD, new: str = NEW) -> Any:
    return browser.post(CHANGE, {"oldpassword": old, "password1": new, "password2": new})


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


def log_out_everywhere(user: User) -> None:
    versions.raise_version(User.objects.get(pk=user.pk))


@pytest.mark.parametrize("rival", [deactivate, delete, reset, log_out_everywhere])
def test_a_password_change_under_way_does_not_undo_another_change(
    chief: User, log_in: LogIn, rival: Callable[[User], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """P: reads the account, hashes the new password
    Q: deactivates the account, deletes it, resets its password, ends its sessions; COMMIT
    P: refused. (Before, it wrote the whole account as it had read it, and its session stayed valid.)
    """
    browser = log_in(chief)
    hash_password = User.set_password

    def hash_and_let_rival_act(user: AbstractBaseUser, password: str | None) -> None:
        monkeypatch.setattr(User, "set_password", hash_password)
        user.set_password(password)
        in_another_connection(lambda: rival(chief))

    monkeypatch.setattr(User, "set_password", hash_and_let_rival_act)
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
