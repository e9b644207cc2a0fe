"""The check-in API: authorization, responses, and retries by devices."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.test import Client

from apps.accounts.tokens.account_tokens import RefreshToken
from apps.kernel import clock
from apps.orders.checkin import api_views, door_links
from apps.orders.models import DoorLink, Ticket, TicketScan
from tests.support.api_client import assert_problem
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy

pytestmark = pytest.mark.django_db(transaction=True)
PATH = "/api/events/concert/check-in"


@pytest.fixture
def concert():
    return make_event("concert", general_admission=20, starts_at=clock.now() + timedelta(hours=1))


@pytest.fixture
def ticket(concert) -> Ticket:
    return buy(hold(concert, seats=["hall-A-1"])).tickets.get()


def bearer(*, may: bool = True) -> dict[str, str]:
    user = get_user_model().objects.create_user(f"{uuid.uuid4().hex}@example.org", password="a door's own")
    if may:
        user.user_permissions.add(Permission.objects.get(codename="check_in", content_type__app_label="orders"))
    return {"authorization": f"Bearer {RefreshToken.for_user(user).access_token}"}


def link(event, *, hours: float = 4, begun_hours: float = 1, door: str = "North") -> DoorLink:
    now = clock.now()
    return door_links.make_link(
        event.id,
        name="Vera",
        door=door,
        good_from=now - timedelta(hours=begun_hours),
        good_until=now + timedelta(hours=hours),
        who="staff:1",
    )


def at_door(event, made: DoorLink) -> Client:
    client = Client()
    path = door_links.link_url(made, event.slug).partition("://")[2].partition("/")[2]
    assert client.get(f"/{path}").status_code == 302
    return client


def send(client: Client, headers: dict[str, str], path: str = PATH, **body: Any):
    return client.post(path, body, content_type="application/json", headers=headers)


def scan(client: Client, headers: dict[str, str], code: str, **more: Any):
    return send(client, headers, **{"scan_id": uuid.uuid4().hex, "code": code, **more})


def test_staff_without_a_required_second_factor_may_not_check_in(client, ticket, settings) -> None:
    headers = bearer()
    settings.STAFF_MFA_REQUIRED = True
    refused = scan(client, headers, ticket.code)
    assert_problem(refused, 403, "door-closed")
    assert "second factor" in refused.json()["detail"]
    assert not TicketScan.objects.exists()


def test_staff_checks_in_by_token_and_the_response_says_what_to_do(client, ticket) -> None:
    headers = bearer()
    first = scan(client, headers, ticket.code, door="A")
    assert first.status_code == 200
    answer = first.json()
    assert (answer["outcome"], answer["say"]) == ("welcome", "Let in")
    assert answer["ticket"]["label"] == "Hall, row A, seat 1"
    assert ticket.code not in first.content.decode()
    again = scan(client, headers, ticket.code).json()
    assert (again["outcome"], again["since_door"]) == ("already_in", "A")
    assert again["since"] == answer["at"]
    counts = client.get(PATH, headers=headers).json()
    assert counts == {
        "expected": 1,
        "entered": 1,
        "sections": [{"section": "Hall", "expected": 1, "entered": 1}],
    }
    assert_audit_clean()


def test_the_same_scan_gets_the_same_response_byte_for_byte(client, ticket) -> None:
    headers = bearer()
    answers = [scan(client, headers, ticket.code, scan_id="scan-0001").content for _ in range(3)]
    assert len(set(answers)) == 1
    assert TicketScan.objects.count() == 1
    other = scan(client, headers, "A" * 28, scan_id="scan-0001")
    assert (other.status_code, other.json()["type"]) == (422, "idempotency-mismatch")


def test_a_batch_is_decided_in_order_and_a_bad_scan_blocks_no_other(client, ticket) -> None:
    scans = [
        {"scan_id": "scan-0001", "code": ticket.code},
        {"scan_id": "no", "code": ticket.code},
        "nonsense",
        {"scan_id": "scan-0002", "code": ticket.code},
        {"scan_id": "scan-0003", "undo": "scan-0001"},
        {"scan_id": "scan-0004", "code": ticket.code},
        {"scan_id": "scan-0001", "code": ticket.code},
    ]
    headers = bearer()
    answers = send(client, headers, f"{PATH}/batch", scans=scans).json()["answers"]
    outcomes = [each["answer"] and each["answer"]["outcome"] for each in answers]
    assert outcomes == ["welcome", None, None, "already_in", "undone", "welcome", "welcome"]
    assert [each["problem"] and each["problem"]["type"] for each in answers][1:3] == ["invalid", "invalid"]
    assert [each["scan_id"] for each in answers] == [
        "scan-0001", "no", "", "scan-0002", "scan-0003", "scan-0004", "scan-0001",
    ]  # fmt: skip
    ticket.refresh_from_db()
    assert ticket.checked_in_at is not None


def test_a_scan_that_cannot_be_stored_blocks_no_other_of_its_batch(client, ticket) -> None:
    scans = [
        {"scan_id": "scan-0001", "code": "a\x00b"},
        {"scan_id": "scan-\ud800", "code": ticket.code},
        {"scan_id": "scan-0003", "code": ticket.code, "\ud800": 1},
        {"scan_id": "scan-0004", "code": ticket.code},
    ]
    headers = bearer()
    answers = send(client, headers, f"{PATH}/batch", scans=scans).json()["answers"]
    assert [each["problem"] and each["problem"]["type"] for each in answers] == ["invalid"] * 3 + [None]
    assert [each["scan_id"] for each in answers] == ["scan-0001", "", "scan-0003", "scan-0004"]
    assert answers[3]["answer"]["outcome"] == "welcome"
    assert send(client, headers, f"{PATH}/batch", **{"\ud800": 1}).status_code == 422


def test_a_batch_has_no_other_fields(client, concert) -> None:
    answer = send(client, bearer(), f"{PATH}/batch", scans=[{}], scan=7)
    assert (answer.status_code, answer.json()["errors"]) == (422, {"scan": "unknown field"})


@pytest.mark.parametrize("scans", [None, [], "x", {}, [{}] * 21], ids=["none", "empty", "text", "object", "too many"])
def test_a_batch_is_a_list_of_one_to_twenty(client, concert, scans) -> None:
    answer = send(client, bearer(), f"{PATH}/batch", scans=scans)
    assert (answer.status_code, set(answer.json()["errors"])) == (422, {"scans"})


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "scan_id"),
        ({"scan_id": 5, "code": "A"}, "scan_id"),
        ({"scan_id": "short", "code": "A"}, "scan_id"),
        ({"scan_id": "scan 0001", "code": "A"}, "scan_id"),
        ({"scan_id": "s" * 65, "code": "A"}, "scan_id"),
        ({"scan_id": "scan-0001"}, "code"),
        ({"scan_id": "scan-0001", "code": "  "}, "code"),
        ({"scan_id": "scan-0001", "code": "A", "undo": "scan-0000"}, "code"),
        ({"scan_id": "scan-0001", "code": "A" * 301}, "code"),
        ({"scan_id": "scan-0001", "code": ["A"]}, "code"),
        ({"scan_id": "scan-0001", "code": "A\nB"}, "code"),
        ({"scan_id": "scan-0001", "code": "A", "door": "x" * 61}, "door"),
        ({"scan_id": "scan-0001", "code": "A", "doors": "x"}, "doors"),
        ({"scan_id": "scan-0001", "undo": "?"}, "undo"),
    ],
    ids=str,
)
def test_an_invalid_scan_is_refused_with_an_error_by_field(client, concert, body, field) -> None:
    answer = client.post(PATH, body, content_type="application/json", headers=bearer())
    assert answer.status_code == 422, answer.content
    assert field in answer.json()["errors"]
    assert not TicketScan.objects.exists()


CALLS = [("get", PATH), ("post", PATH), ("post", f"{PATH}/batch")]


@pytest.mark.parametrize(("method", "path"), CALLS, ids=str)
def test_every_call_distinguishes_unauthenticated_from_forbidden(client, ticket, method, path) -> None:
    body = {"scan_id": "scan-0001", "code": ticket.code, "scans": [{"scan_id": "scan-0001", "code": ticket.code}]}
    for headers, expected in (({}, (401, "token-missing")), (bearer(may=False), (403, "door-closed"))):
        answer = getattr(client, method)(path, body, content_type="application/json", headers=headers)
        assert (answer.status_code, answer.json()["type"]) == expected
    assert not TicketScan.objects.exists()


@pytest.mark.parametrize(("method", "path"), CALLS, ids=str)
def test_an_unknown_event_is_not_found(client, concert, method, path) -> None:
    missing = path.replace("concert", "nowhere")
    assert getattr(client, method)(missing, {}, content_type="application/json", headers=bearer()).status_code == 404


def test_a_buyers_token_does_not_authorize_check_in(client, ticket) -> None:
    token = client.post("/api/events/concert/queue", {}, content_type="application/json").json()["queue_token"]
    assert scan(client, {"authorization": f"Bearer {token}"}, ticket.code).status_code == 401


def test_a_session_can_write_only_from_our_own_pages(concert, ticket) -> None:
    user = get_user_model().objects.create_superuser("boss@example.org", password="the boss's own")
    client = Client()
    client.force_login(user)
    assert scan(client, {}, ticket.code).json()["type"] == "cross-origin"
    assert scan(client, {"sec-fetch-site": "cross-site"}, ticket.code).json()["type"] == "cross-origin"
    assert scan(client, SAME_ORIGIN, ticket.code).json()["outcome"] == "welcome"
    assert TicketScan.objects.get().who == f"staff:{user.pk}"


def test_a_door_link_checks_in_at_its_event_and_door_only(concert, ticket) -> None:
    ball = make_event("ball")
    made = link(concert)
    volunteer = at_door(concert, made)
    answer = scan(volunteer, SAME_ORIGIN, ticket.code, door="somewhere else")
    assert answer.json()["outcome"] == "welcome"
    row = TicketScan.objects.get()
    assert (row.who, row.door) == (f"link:{made.pk}", "North")
    elsewhere = send(volunteer, SAME_ORIGIN, "/api/events/ball/check-in", scan_id="scan-0001", code=ticket.code)
    assert elsewhere.status_code == 401
    moved = Client(headers={"cookie": f"door-{ball.id}={volunteer.cookies[f'door-{concert.id}'].value}"})
    other = send(moved, SAME_ORIGIN, "/api/events/ball/check-in", scan_id="scan-0001", code=ticket.code)
    assert (other.status_code, other.json()["type"]) == (403, "door-closed")


def test_a_door_link_ends_with_its_period_and_when_it_is_revoked(concert, ticket) -> None:
    made = link(concert)
    volunteer = at_door(concert, made)
    assert volunteer.get(PATH).status_code == 200
    for change in ({"good_until": clock.now() - timedelta(minutes=1)}, {"good_from": clock.now() + timedelta(hours=1)}):
        DoorLink.objects.filter(pk=made.pk).update(**change)
        assert volunteer.get(PATH).json()["type"] == "door-closed"
        DoorLink.objects.filter(pk=made.pk).update(good_from=made.good_from, good_until=made.good_until)
    assert volunteer.get(PATH).status_code == 200
    assert door_links.revoke_link(made.pk, "staff:1")
    assert not door_links.revoke_link(made.pk, "staff:2")
    refused = scan(volunteer, SAME_ORIGIN, ticket.code)
    assert (refused.status_code, refused.json()["type"]) == (403, "door-closed")
    assert "was revoked" in refused.json()["detail"]
    assert not TicketScan.objects.exists()


def test_a_link_that_is_revoked_during_a_batch_decides_no_further_scan(concert, ticket, monkeypatch) -> None:
    made = link(concert)
    volunteer = at_door(concert, made)
    decide = api_views.scan

    def decide_and_revoke(*args: Any, **kwargs: Any) -> Any:
        answer = decide(*args, **kwargs)
        door_links.revoke_link(made.pk, "staff:1")
        return answer

    monkeypatch.setattr(api_views, "scan", decide_and_revoke)
    scans = [{"scan_id": f"scan-000{number}", "code": ticket.code} for number in range(3)]
    refused = send(volunteer, SAME_ORIGIN, f"{PATH}/batch", scans=scans)
    assert (refused.status_code, refused.json()["type"]) == (403, "door-closed")
    assert [row.scan_id for row in TicketScan.objects.all()] == ["scan-0000"]
    # The phone keeps all of them, and another link gets the same answer.
    again = send(at_door(concert, link(concert)), SAME_ORIGIN, f"{PATH}/batch", scans=scans[:1])
    assert [one["answer"]["outcome"] for one in again.json()["answers"]] == ["welcome"]


def test_a_door_link_with_one_changed_letter_is_refused(concert) -> None:
    made, other = link(concert), link(concert)
    key = door_links._key(made.pk)
    forged = f"{other.pk.hex}.{key.partition('.')[2]}"
    for cookie in (forged, key[:-1], "x", "."):
        client = Client(headers={"cookie": f"door-{concert.id}={cookie}"})
        assert client.get(PATH).json()["type"] == "door-closed"


def test_a_link_undoes_only_its_own_check_ins(concert, ticket) -> None:
    one, other = (at_door(concert, link(concert)) for _ in range(2))
    scan(one, SAME_ORIGIN, ticket.code, scan_id="scan-0001")
    assert send(other, SAME_ORIGIN, scan_id="scan-0002", undo="scan-0001").json()["outcome"] == "not_undone"
    assert send(one, SAME_ORIGIN, scan_id="scan-0003", undo="scan-0001").json()["outcome"] == "undone"


def test_scans_are_rate_limited_like_all_writes(client, concert, settings) -> None:
    from apps.kernel.rate_limits import kinds

    assert kinds.kind_of("POST", PATH) == "write"
    assert kinds.kind_of("POST", f"{PATH}/batch") == "write"
    assert kinds.kind_of("GET", PATH) == "page"
