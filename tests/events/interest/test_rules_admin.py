"""The admin of the rules by which a view counts."""

import pytest
from django.test import Client
from django.utils.html import escape

from apps.accounts.models import User
from apps.events.interest import rules
from apps.events.models import ViewRule, ViewRuleSet

LIST = "/admin/events/viewrule/"


@pytest.fixture
def admin(db: None) -> Client:
    client = Client(headers={"sec-fetch-site": "same-origin"})
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_superusers_see_the_five_rules_and_change_them(admin: Client) -> None:
    page = admin.get(LIST).content.decode()
    assert all(escape(label) in page for label in ViewRule.Kind.labels)
    saved = admin.post(f"{LIST}min_seconds/change/", {"is_on": "on", "number": "25"})
    assert saved.status_code == 302
    assert rules.read_rules().min_seconds == 25
    assert ViewRuleSet.objects.count() == 2, "views logged before are judged as before"
    admin.post(f"{LIST}bots/change/", {"is_on": "on", "words": " Evil \n\nworse"})
    assert rules.read_rules().bots == ("evil", "worse")
    admin.post(f"{LIST}min_seconds/change/", {"number": "25"})
    assert rules.read_rules().min_seconds == 0


@pytest.mark.parametrize(
    ("kind", "sent", "error"),
    [
        ("min_seconds", {"number": "601"}, "Enter 1 to 600."),
        ("repeat_minutes", {"number": "0"}, "Enter 1 to 60."),
        ("address_max", {"number": ""}, "This field is required."),
        ("bots", {"words": "ok\n"}, "a line has 3 to 80 characters"),
    ],
)
def test_a_rule_out_of_range_is_refused(admin: Client, kind: str, sent: dict[str, str], error: str) -> None:
    admin.get(LIST)
    response = admin.post(f"{LIST}{kind}/change/", {"is_on": "on", **sent})
    assert error in response.content.decode()
    assert ViewRuleSet.objects.count() == 1


def test_rules_cannot_be_added_or_deleted(admin: Client) -> None:
    admin.get(LIST)
    assert admin.get(f"{LIST}add/").status_code == 403
    assert admin.post(f"{LIST}bots/delete/", {"post": "yes"}).status_code == 403
