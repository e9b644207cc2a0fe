"""Staff who may change accounts change those of customers only, and grant no privileges."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.test import Client

from apps.accounts.models import User
from tests.support.accounts.credentials import PASSWORD

LogIn = Callable[[User], Client]
MODELS = ("user", "group")


@pytest.fixture
def clerk(db: None) -> User:
    """A member of staff with every permission on accounts and groups."""
    clerk = User.objects.create_user("clerk", password=PASSWORD, is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(content_type__model__in=MODELS))
    return clerk


def form_of(user: User, **more: str) -> dict[str, Any]:
    joined = user.date_joined
    return {
        "username": user.username,
        "email": user.email,
        "first_name": "Changed",
        "is_active": "on",
        "date_joined_0": f"{joined:%Y-%m-%d}",
        "date_joined_1": f"{joined:%H:%M:%S}",
        **more,
    }


def test_staff_do_not_raise_their_own_privileges(clerk: User, log_in: LogIn) -> None:
    page = f"/admin/accounts/user/{clerk.pk}/change/"
    assert log_in(clerk).post(page, form_of(clerk, is_superuser="on", is_staff="on")).status_code == 403
    clerk.refresh_from_db()
    assert not clerk.is_superuser


def test_staff_do_not_take_over_accounts_of_staff(clerk: User, chief: User, log_in: LogIn) -> None:
    browser, page = log_in(clerk), f"/admin/accounts/user/{chief.pk}/"
    password = {"password1": "a new one of length", "password2": "a new one of length", "usable_password": "true"}
    assert browser.post(f"{page}change/", form_of(chief, email="clerk@example.org")).status_code == 403
    assert browser.post(f"{page}password/", password).status_code == 403
    assert browser.post(f"{page}delete/", {"post": "yes"}).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": [chief.pk], "post": "yes"}
    assert browser.post("/admin/accounts/user/", chosen).status_code == 403
    chief.refresh_from_db()
    assert chief.email == ""
    assert chief.check_password(PASSWORD)


def test_staff_grant_no_privileges_to_a_customer(clerk: User, ann: User, log_in: LogIn) -> None:
    group = Group.objects.create(name="managers")
    form = form_of(ann, is_superuser="on", is_staff="on", groups=str(group.pk))
    assert log_in(clerk).post(f"/admin/accounts/user/{ann.pk}/change/", form).status_code == 302
    ann.refresh_from_db()
    assert (ann.first_name, ann.is_superuser, ann.is_staff) == ("Changed", False, False)
    assert not ann.groups.exists()


def test_staff_change_no_groups(clerk: User, log_in: LogIn) -> None:
    group, browser = Group.objects.create(name="managers"), log_in(clerk)
    for page in ("add/", f"{group.pk}/change/", f"{group.pk}/delete/"):
        assert browser.post(f"/admin/auth/group/{page}", {"name": "all", "post": "yes"}).status_code == 403


def test_a_superuser_grants_privileges(chief: User, ann: User, log_in: LogIn) -> None:
    form = form_of(ann, is_staff="on")
    assert log_in(chief).post(f"/admin/accounts/user/{ann.pk}/change/", form).status_code == 302
    ann.refresh_from_db()
    assert ann.is_staff
