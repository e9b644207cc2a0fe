"""The account's page lists its sessions; the owner ends one of them, with its tokens, and the others stay."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from apps.accounts.models import AccountSession, SecurityEvent, User
from apps.accounts.sessions import account_sessions, recorder
from apps.accounts.tokens import versions
from apps.accounts.tokens.account_tokens import AccessToken
from apps.kernel import clock
from apps.kernel.http.sessions import stored_key
from tests.support.accounts.credentials import LOG_IN, PASSWORD
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)
LogIn = Callable[[User], Client]
PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Version/17.5 Mobile/15E148 Safari/604.1"


def on_a_phone(user: User) -> Client:
    phone = Client(headers={"sec-fetch-site": "same-origin", "user-agent": PHONE})
    assert phone.post(LOG_IN, {"username": user.username, "password": PASSWORD}).status_code == 302
    return phone


def row_of(browser: Client) -> AccountSession:
    return AccountSession.objects.get(session_key=stored_key(browser.cookies["sessionid"].value))


def log_out_path(browser: Client) -> str:
    return f"/accounts/sessions/{row_of(browser).pk}/log-out"


def is_logged_in(browser: Client) -> bool:
    return browser.get("/accounts/").status_code == 200


def test_the_page_lists_devices_and_marks_this_one(ann: User, chief: User, log_in: LogIn) -> None:
    here, phone, _ = log_in(ann), on_a_phone(ann), log_in(chief)
    page = here.get("/accounts/").content.decode()
    assert "Safari on iPhone" in page
    assert page.count("This device") == 1
    assert re.findall(r"/accounts/sessions/\d+/log-out", page) == [log_out_path(phone)]
    assert phone.cookies["sessionid"].value not in page
    assert not AccountSession.objects.filter(session_key=phone.cookies["sessionid"].value).exists(), "only its digest"


def test_the_owner_ends_one_session_and_the_others_stay(ann: User, log_in: LogIn) -> None:
    here, phone, other = log_in(ann), on_a_phone(ann), log_in(ann)
    token = AccessToken.for_user(ann)
    path = log_out_path(phone)
    assert here.get(path).status_code == 405
    answer = here.post(path, follow=True)
    assert "The device was logged out." in answer.content.decode()
    assert "logged out another device" in answer.content.decode().lower()
    assert not is_logged_in(phone)
    assert is_logged_in(here)
    assert is_logged_in(other)
    assert token.account() is None, "the session may have got tokens"
    before = User.objects.get(pk=ann.pk).token_version
    assert "logged out already" in here.post(path, follow=True).content.decode()
    assert User.objects.get(pk=ann.pk).token_version == before
    assert is_logged_in(here)
    assert SecurityEvent.objects.filter(kind="device_logged_out", account=ann).count() == 1


def test_of_very_many_sessions_those_used_last_stay(
    ann: User, log_in: LogIn, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    monkeypatch.setattr(account_sessions, "KEPT_MAX", 2)
    oldest, older, phone, other, here = log_in(ann), log_in(ann), on_a_phone(ann), log_in(ann), log_in(ann)
    with django_assert_max_num_queries(30):
        assert "The device was logged out." in here.post(log_out_path(phone), follow=True).content.decode()
    assert [is_logged_in(each) for each in (here, other, older, oldest)] == [True, True, False, False]


def test_only_the_owner_ends_a_session(ann: User, chief: User, log_in: LogIn) -> None:
    browser, stranger = log_in(ann), log_in(chief)
    path = log_out_path(browser)
    assert "logged out already" in stranger.post(path, follow=True).content.decode()
    assert Client(headers={"sec-fetch-site": "same-origin"}).post(path).status_code == 302
    assert Client(headers={"sec-fetch-site": "cross-site"}).post(path).status_code == 403
    assert is_logged_in(browser)


def test_ended_and_expired_sessions_are_not_listed(ann: User, log_in: LogIn) -> None:
    here, gone, expired = log_in(ann), log_in(ann), log_in(ann)
    gone.post("/accounts/log-out")
    Session.objects.filter(session_key=row_of(expired).session_key).update(expire_date=clock.now() - timedelta(days=1))
    assert account_sessions.list_sessions(ann) == [row_of(here)]
    assert account_sessions.delete_ended() == 1
    log_in(ann)
    here.post("/accounts/log-out-everywhere")
    assert [each.session_key for each in account_sessions.list_sessions(User.objects.get(pk=ann.pk))] == [
        row_of(here).session_key
    ]


def test_a_session_is_recorded_once_in_a_while(ann: User, log_in: LogIn, monkeypatch: pytest.MonkeyPatch) -> None:
    here = log_in(ann)
    first = row_of(here).last_seen_at
    here.get("/accounts/")
    assert row_of(here).last_seen_at == first
    monkeypatch.setattr(recorder, "INTERVAL_SECONDS", -1)
    here.get("/accounts/")
    assert row_of(here).last_seen_at > first
    assert AccountSession.objects.filter(account=ann).count() == 1


def test_two_devices_that_end_each_other_at_once_leave_none_half_open(ann: User, log_in: LogIn) -> None:
    """A: ends B's session, moves A's to version 1
    B: had read its session at version 0, waits for the account's lock, ends A's session

    A request that was authenticated before its session ended still decides for its owner.
    """
    pair = [log_in(ann), log_in(ann)]
    paths = [log_out_path(browser) for browser in pair]
    values(storm(2, lambda number: pair[number].post(paths[1 - number])))
    assert sum(is_logged_in(browser) for browser in pair) <= 1
    shown = account_sessions.list_sessions(User.objects.get(pk=ann.pk))
    assert len(shown) == sum(is_logged_in(browser) for browser in pair)


def test_the_version_rises_with_the_end_of_a_session(ann: User, log_in: LogIn) -> None:
    """So every process ends its admission tokens and streams, as after a log-out everywhere."""
    here, phone = log_in(ann), on_a_phone(ann)
    held = versions.AccountVersion(ann.pk, User.objects.get(pk=ann.pk).token_version)
    here.post(log_out_path(phone))
    versions.refresh()
    assert versions.is_revoked(held)
