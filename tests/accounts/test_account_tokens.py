"""User tokens: a pair for an email address and a password, and a new access token for a refresh token."""

from datetime import timedelta
from typing import Any

import pytest
from allauth.account.models import EmailAddress

from apps.accounts.models import User
from apps.accounts.tokens.account_tokens import AccessToken, RefreshToken
from apps.kernel.tokens import jwt
from tests.support.api_client import Api, assert_problem

PASSWORD = "correct horse battery staple"


@pytest.fixture
def ann(db: None) -> User:
    return User.objects.create_user("ann@example.org", password=PASSWORD)


def test_an_email_address_and_a_password_give_a_token_pair(api: Api, ann: User) -> None:
    response = api.post("/auth/token", {"username": "Ann@Example.org ", "password": PASSWORD})
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    pair = response.json()
    assert pair.keys() == {"access", "refresh"}
    assert jwt.peek_type(pair["access"]) == "access"
    assert jwt.peek_type(pair["refresh"]) == "refresh"
    refreshed = api.post("/auth/token/refresh", {"refresh": pair["refresh"]})
    assert refreshed.status_code == 200
    assert refreshed.json().keys() == {"access"}
    assert jwt.peek_type(refreshed.json()["access"]) == "access"


@pytest.mark.parametrize(
    "credentials",
    [
        {"username": "ann@example.org", "password": "wrong"},
        {"username": "ann@example.org", "password": PASSWORD.upper()},
        {"username": "bob@example.org", "password": PASSWORD},
    ],
)
def test_all_wrong_credentials_get_the_same_refusal(api: Api, ann: User, credentials: dict[str, str]) -> None:
    assert_problem(api.post("/auth/token", credentials), 401, "credentials-wrong")


def test_an_inactive_or_deleted_account_gets_no_tokens(api: Api, ann: User) -> None:
    refresh = RefreshToken.for_user(ann)
    User.objects.update(is_active=False)
    assert_problem(api.post("/auth/token", {"username": ann.username, "password": PASSWORD}), 401, "credentials-wrong")
    assert_problem(api.post("/auth/token/refresh", {"refresh": str(refresh)}), 401, "token-invalid")
    assert_problem(api.get("/orders", token=str(refresh.access_token)), 401, "token-invalid")
    User.objects.all().delete()
    assert_problem(api.post("/auth/token/refresh", {"refresh": str(refresh)}), 401, "token-invalid")
    assert_problem(api.get("/orders", token=str(refresh.access_token)), 401, "token-invalid")


def test_an_account_that_must_confirm_its_address_gets_no_tokens_before(api: Api, ann: User, settings: Any) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    credentials = {"username": ann.username, "password": PASSWORD}
    assert_problem(api.post("/auth/token", credentials), 401, "credentials-wrong")
    wrong = {**credentials, "password": "wrong"}
    assert_problem(api.post("/auth/token", wrong), 401, "credentials-wrong")
    confirmed = EmailAddress.objects.create(user=ann, email=ann.email, verified=True, primary=True)
    assert api.post("/auth/token", credentials).status_code == 200
    confirmed.delete()
    User.objects.update(is_staff=True)
    assert api.post("/auth/token", credentials).status_code == 200, "an administrator has created staff accounts"


def test_only_a_valid_refresh_token_is_accepted(api: Api, ann: User) -> None:
    old = RefreshToken.for_user(ann)
    old.set_exp(lifetime=timedelta(seconds=-1))
    assert_problem(api.post("/auth/token/refresh", {"refresh": str(old)}), 401, "token-expired")
    for token in (str(AccessToken.for_user(ann)), "x", "a.b.c", "W" * 1_200):
        assert_problem(api.post("/auth/token/refresh", {"refresh": token}), 401, "token-invalid")


def test_an_expired_access_token_is_refused_as_expired(api: Api, ann: User) -> None:
    access = AccessToken.for_user(ann)
    access.set_exp(lifetime=timedelta(seconds=-1))
    assert_problem(api.get("/orders", token=str(access)), 401, "token-expired")


def test_a_refresh_token_is_not_an_access_token(api: Api, ann: User) -> None:
    assert_problem(api.get("/orders", token=str(RefreshToken.for_user(ann))), 401, "token-invalid")


def test_an_unknown_field_is_refused_by_name(api: Api, ann: User) -> None:
    for path in ("/auth/token", "/auth/token/refresh"):
        body = {"username": "ann@example.org", "password": PASSWORD, "refresh": "x", "scope": "all"}
        errors = assert_problem(api.post(path, body), 422, "invalid")["errors"]
        assert errors["scope"] == "unknown field"


def test_blank_credentials_are_wrong_and_not_malformed(api: Api, ann: User) -> None:
    assert_problem(api.post("/auth/token", {"username": " ", "password": " "}), 401, "credentials-wrong")
    assert_problem(api.post("/auth/token/refresh", {"refresh": " "}), 401, "token-invalid")


@pytest.mark.parametrize("path", ["/auth/token", "/auth/token/refresh"])
@pytest.mark.parametrize(
    "body",
    [
        {}, [], 7, {"username": None, "password": None, "refresh": None},
        {"username": ["a"], "password": {"b": 1}, "refresh": [1]},
        {"username": True, "password": True, "refresh": True},
        {"username": "", "password": "", "refresh": ""},
        {"username": "x" * 151, "password": "y" * 1_001, "refresh": "z" * 1_201},
    ],
)  # fmt: skip
def test_invalid_credentials_are_refused(api: Api, db: None, path: str, body: Any) -> None:
    assert_problem(api.post(path, body), 422, "invalid")
