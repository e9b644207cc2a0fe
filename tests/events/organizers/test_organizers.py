"""Organizers of events: the default one, the migration of existing events, and memberships in the admin."""

import uuid
from io import StringIO
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

from apps.accounts.models import SecurityEvent
from apps.events.creation import EventDiffers, create_event
from apps.events.models import Event, Membership, Organizer, Role, SeatingPlan
from apps.events.organizers import legal_pages
from apps.events.publication import EventRefused
from tests.support import factories
from tests.support.events.factories import in_days, spec
from tests.support.orders.sale import SAME_ORIGIN

COMMAND = (
    "--name",
    "Gala",
    "--venue",
    "Hall",
    "--timezone",
    "UTC",
    "--general-admission",
    "Floor:10:100",
    "--currency",
    "USD",
)


def member_client(organizer: Organizer, role: Role = Role.ORGANIZER) -> Client:
    client = Client(headers=SAME_ORIGIN)
    client.force_login(factories.make_member(organizer, role))
    return client


@pytest.mark.django_db
def test_events_without_an_organizer_belong_to_the_default_one() -> None:
    call_command("create_event", "gala", *COMMAND, "--starts", in_days(9).isoformat(), stdout=StringIO())
    event = Event.objects.get()
    assert (event.organizer.slug, event.organizer.name) == ("default", "Default organizer")
    Organizer.objects.update(name="Renamed")
    assert create_event(spec()).event_id
    assert set(Event.objects.values_list("organizer__name", flat=True)) == {"Renamed"}
    assert SeatingPlan.objects.get().organizer == event.organizer


@pytest.mark.django_db
def test_create_event_names_an_organizer() -> None:
    factories.make_organizer("opera")
    arguments = ("create_event", "gala", *COMMAND, "--starts", in_days(9).isoformat())
    with pytest.raises(CommandError, match="there is no organizer 'unknown'"):
        call_command(*arguments, "--organizer", "unknown")
    assert not Event.objects.exists()
    call_command(*arguments, "--organizer", "opera", stdout=StringIO())
    assert Event.objects.get().organizer.slug == "opera"
    call_command(*arguments, stdout=StringIO())  # Unchanged: no organizer is named.
    factories.make_organizer("ballet")
    with pytest.raises(CommandError, match="organizer is opera, not ballet"):
        call_command(*arguments, "--organizer", "ballet")


@pytest.mark.django_db
def test_invalid_organizers_are_refused() -> None:
    for slug in ("\x00", "ü", "a" * 200, "' OR 1=1"):
        with pytest.raises(EventRefused):
            create_event(spec(organizer=slug))
    event_id = create_event(spec()).event_id
    with pytest.raises(EventDiffers):
        create_event(spec(organizer="opera"))
    assert list(Event.objects.values_list("pk", flat=True)) == [event_id]


@pytest.mark.django_db
def test_the_same_plan_is_stored_once_for_each_organizer() -> None:
    factories.make_organizer("opera")
    create_event(spec("first"))
    create_event(spec("second"))
    create_event(spec("third", organizer="opera"))
    assert SeatingPlan.objects.count() == 2


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_migration_assigns_existing_events_to_the_default_organizer() -> None:
    leaves = MigrationExecutor(connection).loader.graph.leaf_nodes()
    try:
        _migrate([("events", "0014_organizers"), ("orders", "0018_order_email_index")])
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO events_venue (slug, name, city, address, timezone) VALUES ('v','V','','','UTC')"
            )
            cursor.execute(
                "INSERT INTO events_event (slug, name, description, venue_id, starts_at, currency, status, poster,"
                " created_at) SELECT 'old', 'Old', '', id, now(), 'USD', 'draft', '', now() FROM events_venue"
            )
    finally:
        _migrate(leaves)
    assert Event.objects.get().organizer.name == "Default organizer"


def _migrate(targets: list[tuple[str, str]]) -> None:
    executor = MigrationExecutor(connection)
    executor.migrate(targets)


@pytest.mark.slow
@pytest.mark.django_db
def test_an_account_with_an_unconfirmed_address_becomes_no_staff(client: Client, settings: Any) -> None:
    """A stranger may have signed up with a colleague's address, and would log in as staff with the own password."""
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    opera = factories.make_organizer("opera")
    user = get_user_model().objects.create_user("ann@example.org", "ann@example.org")
    address = EmailAddress.objects.create(user=user, email=user.email, primary=True, verified=False)
    client.force_login(get_user_model().objects.create_superuser("root"))
    sent = {"organizer": opera.pk, "username": "ann@example.org", "role": "door"}
    answer = client.post("/admin/events/membership/add/", sent, headers=SAME_ORIGIN)
    assert "has not confirmed its email address" in answer.text
    profile = {"username": user.username, "email": user.email, "is_active": "on", "is_staff": "on"}
    changed = client.post(f"/admin/accounts/user/{user.pk}/change/", profile, headers=SAME_ORIGIN)
    assert "has not confirmed its email address" in changed.text
    user.refresh_from_db()
    assert not Membership.objects.exists()
    assert not user.is_staff
    EmailAddress.objects.filter(pk=address.pk).update(verified=True)
    assert client.post("/admin/events/membership/add/", sent, headers=SAME_ORIGIN).status_code == 302


@pytest.mark.django_db
def test_superusers_add_members_by_username(client: Client) -> None:
    opera = factories.make_organizer("opera")
    user = get_user_model().objects.create_user("ann@example.org")
    client.force_login(get_user_model().objects.create_superuser("root"))
    page, sent = (
        "/admin/events/membership/add/",
        {"organizer": opera.pk, "username": " Ann@Example.org", "role": "door"},
    )
    for wrong in ({"organizer": 0}, {"username": "unknown@example.org"}, {"role": "root"}, {"username": "\x00"}):
        assert client.post(page, sent | wrong, headers=SAME_ORIGIN).status_code == 200
        assert not Membership.objects.exists()
    assert client.post(page, sent, headers=SAME_ORIGIN).status_code == 302
    added = Membership.objects.get(user=user)
    assert (added.organizer, added.role) == (opera, "door")
    assert "is a member already" in client.post(page, sent, headers=SAME_ORIGIN).content.decode()
    user.refresh_from_db()
    assert user.is_staff
    client.post(f"/admin/events/organizer/{opera.pk}/delete/", {"post": "yes"}, headers=SAME_ORIGIN)
    assert Organizer.objects.filter(pk=opera.pk).exists()
    assert logged() == [("root", f"added: membership account {user.pk} at Opera: door")]


@pytest.mark.django_db
def test_members_with_the_role_change_and_end_memberships_of_their_organizer_only() -> None:
    opera, ballet = factories.make_organizer("opera"), factories.make_organizer("ballet")
    user = factories.make_member(opera, Role.DOOR, "ann@example.org")
    foreign = Membership.objects.get(user=factories.make_member(ballet, Role.DOOR))
    client, added = member_client(opera), Membership.objects.get(user=user)
    sent = {"organizer": opera.pk, "username": "ann@example.org", "role": "door"}
    assert client.post("/admin/events/membership/add/", sent).status_code == 403
    for page in ("change", "delete"):
        url = f"/admin/events/membership/{foreign.pk}/{page}/"
        assert client.post(url, {"role": "finance", "post": "yes"}).status_code == 302
    foreign.refresh_from_db()
    assert foreign.role == "door"
    page = f"/admin/events/membership/{added.pk}/change/"
    assert client.post(page, {"role": "finance", "organizer": ballet.pk, "user": 1}).status_code == 302
    added.refresh_from_db()
    assert (added.organizer, added.user, added.role) == (opera, user, "finance")
    assert client.post(f"/admin/events/membership/{added.pk}/delete/", {"post": "yes"}).status_code == 302
    user.refresh_from_db()
    assert not user.is_staff
    assert [entry.action_flag for entry in LogEntry.objects.order_by("pk")] == [2, 3]
    who = "organizer@opera.example"
    assert logged() == [
        (who, f"changed: membership account {user.pk} at Opera: finance"),
        (who, f"deleted: membership account {user.pk} at Opera: finance"),
    ]


def logged() -> list[tuple[str, str]]:
    """Return names and details of the actions of staff in the security log."""
    found = SecurityEvent.objects.filter(kind=SecurityEvent.Kind.STAFF_ACTION).order_by("pk")
    return list(found.values_list("name", "detail"))


@pytest.mark.django_db
def test_changes_of_memberships_need_a_recent_authentication(settings: Any) -> None:
    settings.REAUTHENTICATION_SECONDS = 900
    opera = factories.make_organizer("opera")
    added = Membership.objects.get(user=factories.make_member(opera, Role.DOOR, "ann@example.org"))
    client = member_client(opera)  # Its session has no recorded authentication.
    for page in (f"membership/{added.pk}/change/", f"membership/{added.pk}/delete/", f"organizer/{opera.pk}/change/"):
        response = client.post(f"/admin/events/{page}", {"role": "finance", "post": "yes", "name": "x"})
        assert (response.status_code, "/admin/" in response["Location"].partition("?")[0]) == (302, False), page
    added.refresh_from_db()
    opera.refresh_from_db()
    assert (added.role, opera.name) == ("door", "Opera")


@pytest.mark.parametrize("role", [role for role in Role if role != Role.ORGANIZER])
@pytest.mark.django_db
def test_other_roles_see_no_members_and_change_no_organizer(role: Role) -> None:
    opera = factories.make_organizer("opera")
    client = member_client(opera, role)
    for page in ("membership/", "membership/add/", "organizer/add/"):
        assert client.get(f"/admin/events/{page}").status_code == 403
    assert client.get(f"/admin/events/organizer/{opera.pk}/change/").status_code == 200
    assert client.post(f"/admin/events/organizer/{opera.pk}/change/", {"name": "x"}).status_code == 403


@pytest.mark.django_db
def test_members_log_in_at_the_admin_with_their_password() -> None:
    user = factories.make_member(factories.make_organizer())
    user.set_password("right-horse-battery")
    user.save()
    buyer = get_user_model().objects.create_user("buyer", password="right-horse-battery")
    for account, admitted in ((user, True), (buyer, False)):
        client = Client(headers=SAME_ORIGIN)
        form = {"username": account.get_username(), "password": "right-horse-battery", "next": "/admin/"}
        client.post("/accounts/log-in", form)
        page = client.get("/admin/")
        assert page.status_code == (200 if admitted else 302)
        assert "audit" not in page.content.decode().lower()


@pytest.mark.django_db
def test_a_plan_of_another_organizer_cannot_be_used() -> None:
    factories.make_organizer("opera")
    draft = create_event(spec(draft=True)).event_id
    foreign = SeatingPlan.objects.create(
        organizer=Organizer.objects.get(slug="opera"), venue=Event.objects.get().venue, name="x", digest="x",
        seat_count=1, layout={},
    )  # fmt: skip
    client = Client(headers=SAME_ORIGIN)
    client.force_login(get_user_model().objects.create_superuser("root"))
    response = client.post(f"/admin/events/event/{draft}/change/", {"plan": foreign.pk, "venue": foreign.venue_id})
    assert "organizer" in str(response.context["errors"]) or response.status_code == 200
    assert Event.objects.get().plan_id != foreign.pk


@pytest.mark.django_db
def test_staff_status_lasts_as_long_as_a_membership_or_a_right_of_the_account() -> None:
    opera, ballet = factories.make_organizer("opera"), factories.make_organizer("ballet")
    users = get_user_model().objects
    for name, lasts in (("plain", False), ("root", True), ("permitted", True)):
        user = users.create_superuser(name) if name == "root" else users.create_user(name)
        if name == "permitted":
            user.user_permissions.add(Permission.objects.get(codename="view_event"))
        for organizer in (opera, ballet):
            factories.make_member(organizer, Role.DOOR, name)
        for membership in Membership.objects.filter(user=user):
            assert users.get(pk=user.pk).is_staff
            membership.delete()
        assert users.get(pk=user.pk).is_staff == lasts


def test_the_html_of_a_legal_page_is_made_once_for_each_text() -> None:
    legal_pages.html_of.cache_clear()
    text = "Mails to <help@example.org>.\n\nMore at https://example.org/terms & elsewhere." + uuid.uuid4().hex
    assert legal_pages.html_of(text) == legal_pages.html_of("".join(text))
    html = legal_pages.html_of(text)
    assert '<p>Mails to &lt;<a href="mailto:help@example.org">' in html
    assert '<p>More at <a href="https://example.org/terms"' in html
    assert "&amp; elsewhere" in html
    assert (legal_pages.html_of.cache_info().misses, legal_pages.html_of.cache_info().hits) == (1, 2)
