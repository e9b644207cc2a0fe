"""Actions of the admin run in a thread of the site, so each of them takes a bounded number of rows."""

from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from apps.kernel import admin_lists
from apps.kernel.admin_lists import BoundedActionsMixin
from apps.queue.models import QueueEntry
from tests.support.queue.rooms import join_waiting_entries, make_room, statuses

pytestmark = pytest.mark.django_db(transaction=True)
ENTRIES = "/admin/queue/queueentry/"


def test_every_list_with_actions_limits_their_rows() -> None:
    """Also one that is registered later. Lists of other packages have none of their own here."""
    ours = {type(one): one.actions for one in admin.site._registry.values() if type(one).__module__.startswith("apps.")}
    with_actions = [kind for kind, actions in ours.items() if actions]
    assert len(with_actions) > 10
    assert [kind for kind in with_actions if not issubclass(kind, BoundedActionsMixin)] == []


@pytest.mark.parametrize("is_across", [True, False], ids=["all of the list", "chosen rows"])
def test_an_action_on_too_many_rows_does_nothing(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, is_across: bool
) -> None:
    monkeypatch.setattr(admin_lists, "ACTION_ROWS_MAX", 3)
    event = make_room()
    join_waiting_entries(event, 4)
    ids = [str(pk) for pk in QueueEntry.objects.values_list("pk", flat=True)]

    def remove(chosen: list[str]) -> Any:
        form = {"action": "remove", "_selected_action": chosen, "why": "a bot", "select_across": int(is_across)}
        return admin_client.post(ENTRIES, form, headers={"sec-fetch-site": "same-origin"}, follow=True)

    assert "Nothing was done. Choose at most 3 at a time." in remove(ids).content.decode()
    assert statuses(event) == ["waiting"] * 4
    monkeypatch.setattr(admin_lists, "ACTION_ROWS_MAX", 4)
    remove(ids)
    assert statuses(event) == ["left"] * 4
