"""The permissions of roles: every permission is in one table, and the documentation lists the same."""

import re
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser, Permission

from apps.events import facade as events
from apps.events.models import Membership, Organizer, Role
from apps.events.organizers.roles import CONFINED_APPS, ROLE_PERMISSIONS, SITE_WIDE, TASKS
from tests.support import factories

CHECKOUT = Path(__file__).resolve().parent.parent.parent.parent
ASKED = re.compile(r"\"((?:events|queue|reservations|orders|kernel|outbox)\.[a-z_]+)\"")


def existing_permissions() -> set[str]:
    return {
        f"{model._meta.app_label}.{name}"
        for model in apps.get_models()
        if model._meta.app_label in CONFINED_APPS
        for name in (
            *(f"{verb}_{model._meta.model_name}" for verb in model._meta.default_permissions),
            *(codename for codename, _ in model._meta.permissions),
        )
    }


def test_every_permission_is_given_to_roles_or_named_as_site_wide() -> None:
    given = [permission for task in TASKS for permission in task.permissions]
    assert len(given) == len(set(given))
    assert not set(given) & SITE_WIDE
    assert set(given) | SITE_WIDE == existing_permissions()


def test_every_permission_that_the_code_asks_for_exists() -> None:
    """A misspelled permission would be refused to everyone but superusers."""
    asked = set()
    for path in (*(CHECKOUT / "apps").rglob("*.py"), *(CHECKOUT / "ticketing").rglob("*.py")):
        if "migrations" not in path.parts:
            for name in ASKED.findall(path.read_text(encoding="utf-8")):
                if name.partition(".")[2].startswith(("view_", "add_", "change_", "delete_", "check_in")):
                    asked.add(name)
    assert len(asked) > 20
    assert {name for name in asked if name.partition(".")[0] in CONFINED_APPS} <= existing_permissions()


def test_the_documentation_has_the_same_table() -> None:
    text = (CHECKOUT / "docs" / "operations" / "staff.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == ["task", *(role.label for role in Role)]
    documented = {row[0]: [cell == "yes" for cell in row[1:]] for row in rows[2:]}
    assert documented == {task.name: [role in task.roles for role in Role] for task in TASKS}


@pytest.mark.slow
@pytest.mark.parametrize("role", Role.values)
@pytest.mark.django_db
def test_a_role_has_its_permissions_at_its_organizer_only(role: str) -> None:
    own, other = factories.make_organizer("own"), factories.make_organizer("other")
    factories.make_event("own-event", organizer="own")
    factories.make_event("other-event", organizer="other", venue="Another")
    user = factories.make_member(own, Role(role))
    for permission in existing_permissions():
        permitted = permission in ROLE_PERMISSIONS[Role(role)]
        assert user.has_perm(permission) == permitted, permission
        assert user.has_perm(permission, own) == permitted, permission
        assert user.has_perm(permission, events.get_event("own-event")) == permitted, permission
        assert not user.has_perm(permission, other), permission
        assert not user.has_perm(permission, events.get_event("other-event")), permission
        assert not user.has_perm(permission, object()), permission
    assert not user.has_perm("auth.change_user")
    assert not user.has_module_perms("auth")
    assert user.has_module_perms("events")


@pytest.mark.django_db
def test_inactive_members_and_anonymous_visitors_have_no_permission() -> None:
    own = factories.make_organizer()
    user = factories.make_member(own)
    user.is_active = False
    assert not user.has_perm("events.view_event", own)
    assert not AnonymousUser().has_perm("events.view_event", own)
    assert not get_user_model().objects.create_user("buyer").has_perm("events.view_event", own)


@pytest.mark.django_db
def test_a_users_own_django_permissions_apply_to_all_organizers() -> None:
    own = factories.make_organizer()
    user = get_user_model().objects.create_user("staff")
    user.user_permissions.add(Permission.objects.get(codename="view_event"))
    assert user.has_perm("events.view_event", own)
    assert not user.has_perm("events.change_event", own)
    assert get_user_model().objects.create_superuser("root").has_perm("events.change_event", own)


@pytest.mark.django_db
def test_permissions_take_one_query_for_each_request(django_assert_num_queries) -> None:
    own = factories.make_organizer()
    pk = factories.make_member(own).pk
    Membership.objects.create(organizer=factories.make_organizer("second"), user_id=pk, role=Role.DOOR)
    user = get_user_model().objects.get(pk=pk)
    user.has_perm("events.view_event")  # Also reads the user's Django permissions, for the first backend.
    with django_assert_num_queries(0):
        for organizer in (own, Organizer(pk=own.pk + 1)):
            user.has_perm("orders.change_order", organizer)
