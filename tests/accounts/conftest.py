"""Accounts for the tests of this folder."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django.test import Client

    from apps.accounts.models import User
    from tests.support.accounts.credentials import AuthenticatorApp


@pytest.fixture
def ann(db: None) -> "User":
    """A customer with a confirmed address."""
    from allauth.account.models import EmailAddress

    from apps.accounts.models import User
    from tests.support.accounts.credentials import PASSWORD

    user = User.objects.create_user("ann@example.org", password=PASSWORD)
    EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
    return user


@pytest.fixture
def chief(db: None) -> "User":
    """A member of staff with all permissions."""
    from apps.accounts.models import User
    from tests.support.accounts.credentials import PASSWORD

    return User.objects.create_superuser("chief", password=PASSWORD)


@pytest.fixture
def log_in(db: None) -> "Callable[[User], Client]":
    """Log an account in by its form, in a browser of its own."""
    from django.test import Client

    from tests.support.accounts.credentials import LOG_IN, PASSWORD

    def act(user: "User") -> Client:
        browser = Client(headers={"sec-fetch-site": "same-origin"})
        response = browser.post(LOG_IN, {"username": user.username, "password": PASSWORD})
        assert response.status_code == 302, response.content
        return browser

    return act


@pytest.fixture
def app_of(monkeypatch: pytest.MonkeyPatch) -> "Callable[[User], AuthenticatorApp]":
    from tests.support.accounts.credentials import AuthenticatorApp

    return lambda user: AuthenticatorApp(user, monkeypatch)
