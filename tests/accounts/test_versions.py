"""A password change, a log-out everywhere and a deactivation end every session and token of the account."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.accounts.tokens import versions
from apps.accounts.tokens.account_tokens import AccessToken, RefreshToken
from apps.events import facade as events
from tests.support.accounts.credentials import PASSWORD
from tests.support.api_client import Api, FastPathCall, assert_problem
from tests.support.races import storm, values

QUEUE = "/events/concert/queue"
LogIn = Callable[[User], Client]


def changed_password(user: User) -> None:
    user.set_password("another of good length")
    user.save()


def changed_password_in_bulk(user: User) -> None:
    User.objects.filter(pk=user.pk).update(password="!")


def logged_out_everywhere(user: User) -> None:
    versions.raise_version(user)


def deactivated(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def deactivated_for_a_moment(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)
    User.objects.filter(pk=user.pk).update(is_active=True)


ends = pytest.mark.parametrize(
    "end",
    [changed_password, changed_password_in_bulk, logged_out_everywhere, deactivated, deactivated_for_a_moment],
)


@ends
def test_sessions_and_tokens_end(
    api: Api, concert: events.EventView, ann: User, log_in: LogIn, end: Callable[[User], None]
) -> None:
    browser = log_in(ann)
    refresh = RefreshToken.for_user(ann)
    access = str(refresh.access_token)
    assert api.post(QUEUE, token=access).status_code == 201
    admission = api.get(f"{QUEUE}/status", token=access).json()["admission_token"]
    assert api.get(f"{QUEUE}/status", token=admission).status_code == 200
    assert browser.get("/accounts/").status_code == 200
    end(User.objects.get(pk=ann.pk))
    versions.refresh()
    assert browser.get("/accounts/").status_code == 302
    for path, method in ((f"{QUEUE}/status", api.get), (QUEUE, api.post), ("/orders", api.get)):
        assert_problem(method(path, token=access), 401, "token-invalid")
    assert_problem(api.post("/auth/token/refresh", {"refresh": str(refresh)}), 401, "token-invalid")
    assert_problem(api.get(f"{QUEUE}/status", token=admission), 401, "token-invalid")
    held = api.post("/events/concert/reservations", {"seats": ["hall-A-1"]}, key="k-1", token=admission)
    assert_problem(held, 401, "token-invalid")


def test_the_fast_path_refuses_an_admission_token_without_a_query(concert: events.EventView, ann: User) -> None:
    api = Api()
    access = str(AccessToken.for_user(ann))
    api.post(QUEUE, token=access)
    admission = api.get(f"{QUEUE}/status", token=access).json()["admission_token"]
    versions.raise_version(ann)
    versions.refresh()
    sent = {"authorization": f"Bearer {admission}"}
    with CaptureQueriesContext(connection) as queries:
        call = FastPathCall(api.client, "GET", f"/api{QUEUE}/status", b"", sent)
        assert_problem(call.answer(), 401, "token-invalid")
    assert call._forwarded is None
    assert ["FROM events_event" in query["sql"] for query in queries] == [True], "only the event, which is cached"


def test_the_browser_that_logs_out_everywhere_stays_logged_in(ann: User, log_in: LogIn) -> None:
    here, elsewhere = log_in(ann), log_in(ann)
    token = RefreshToken.for_user(ann)
    assert here.get("/accounts/log-out-everywhere").status_code == 405
    assert here.post("/accounts/log-out-everywhere").url == "/accounts/"
    assert here.get("/accounts/").status_code == 200
    assert elsewhere.get("/accounts/").status_code == 302
    assert token.account() is None


def test_a_password_change_keeps_this_browser_and_ends_the_others(ann: User, log_in: LogIn) -> None:
    here, elsewhere = log_in(ann), log_in(ann)
    new = "another of good length"
    form = {"oldpassword": PASSWORD, "password1": new, "password2": new}
    assert here.post("/accounts/password", form).url == "/accounts/"
    assert here.get("/accounts/").status_code == 200
    assert elsewhere.get("/accounts/").status_code == 302


def test_an_outdated_copy_of_the_row_does_not_lower_the_version(ann: User) -> None:
    """A form of the admin was opened before the log-out everywhere, and is saved after it."""
    outdated = User.objects.get(pk=ann.pk)
    token = AccessToken.for_user(ann)
    versions.raise_version(ann)
    outdated.first_name = "Ann"
    outdated.save()
    assert User.objects.get(pk=ann.pk).token_version == 1
    assert token.account() is None
    User.objects.filter(pk=ann.pk).update(token_version=0)
    assert User.objects.get(pk=ann.pk).token_version == 1


@pytest.mark.django_db(transaction=True)
def test_concurrent_changes_each_raise_the_version(ann: User) -> None:
    values(storm(6, lambda _: versions.raise_version(User.objects.get(pk=ann.pk))))
    assert User.objects.get(pk=ann.pk).token_version == 6


def test_a_change_of_the_name_or_a_log_in_raises_no_version(ann: User, log_in: LogIn) -> None:
    log_in(ann)
    ann.first_name = "Ann"
    ann.save()
    assert User.objects.get(pk=ann.pk).token_version == 0


@pytest.mark.parametrize("version", [None, "0", 1, -1, True, [0], {}])
def test_a_token_with_another_version_claim_is_refused(api: Api, ann: User, version: Any) -> None:
    token = AccessToken.for_user(ann)
    token["ver"] = version
    assert_problem(api.get("/orders", token=str(token)), 401, "token-invalid")


@pytest.mark.parametrize("account", ["", "x", "-1", "1.5", "9" * 30, None, [1], {"a": 1}])
def test_a_token_with_a_malformed_account_is_refused(api: Api, ann: User, account: Any) -> None:
    token = AccessToken.for_user(ann)
    token["user_id"] = account
    assert_problem(api.get("/orders", token=str(token)), 401, "token-invalid")
