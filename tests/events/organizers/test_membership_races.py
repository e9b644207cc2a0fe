"""Concurrent changes of one account's memberships."""

import pytest
from django.contrib.auth import get_user_model
from django.db import transaction
from django.test import Client

from apps.events.models import Membership, Role
from tests.support import factories
from tests.support.orders.sale import SAME_ORIGIN
from tests.support.races import ConcurrentCall, storm, values

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_ended_membership_leaves_staff_status_to_one_that_is_being_added() -> None:
    """A: BEGIN, add the second membership. B: end the first one, which waits for A. A: COMMIT. B: sees the second one.
    Without the lock, B would not see it, and end the staff status of a member."""
    opera, ballet = factories.make_organizer("opera"), factories.make_organizer("ballet")
    user = factories.make_member(opera, Role.DOOR, "ann@example.org")
    first = Membership.objects.get()
    with transaction.atomic():
        Membership.objects.create(organizer=ballet, user=user, role=Role.DOOR)
        ending = ConcurrentCall(first.delete)
        ending.wait_until_blocked()
    ending.result()
    assert [row.organizer for row in Membership.objects.all()] == [ballet]
    assert get_user_model().objects.get(pk=user.pk).is_staff


@pytest.mark.slow
def test_two_additions_of_one_member_at_once_add_one() -> None:
    opera = factories.make_organizer("opera")
    root = get_user_model().objects.create_superuser("root")
    get_user_model().objects.create_user("ann@example.org")
    sent = {"organizer": opera.pk, "username": "ann@example.org", "role": "door"}

    def add(number: int) -> int:
        client = Client(headers=SAME_ORIGIN)
        client.force_login(root)
        return client.post("/admin/events/membership/add/", sent).status_code

    assert sorted(values(storm(4, add))) == [200, 200, 200, 302]
    assert Membership.objects.count() == 1
