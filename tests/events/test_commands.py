"""The management commands `create_event` and `load_demo`, called as from a shell."""

import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from apps.events import facade
from apps.events.management.commands.measure_plan_import import _sample_plan
from apps.events.models import Event, OnSale, Seat, Section, Venue
from apps.events.plans import parse_plan
from apps.events.publication import EventRefused, publish_event
from apps.events.registries import ReturnTerms, return_policies
from apps.kernel import clock
from tests.support.databases import database_url
from tests.support.events.factories import block, encoded, plan
from tests.support.servers import CHECKOUT

pytestmark = pytest.mark.django_db


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    path = tmp_path / "plan.json"
    path.write_bytes(encoded(plan()))
    return str(path)


def create(*args: str, slug: str = "hamlet", starts: str = "2190-05-01T20:00+02:00") -> tuple[str, str]:
    """Run the command and return its output on both streams."""
    out, err = io.StringIO(), io.StringIO()
    usual = ("--name", "Hamlet", "--venue", "Old Theatre", "--starts", starts, "--currency", "USD", "--timezone", "UTC")
    call_command("create_event", slug, *usual, *args, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_the_command_with_all_its_options(plan_file: str) -> None:
    message, _ = create(
        "--plan", plan_file, "--price", "Stalls:4500", "--general-admission", "Standing floor:100:2500",
        "--on-sale", "now", "--on-sale-ends", "2190-05-01T18:00+02:00", "--per-buyer", "4", "--hold-minutes", "7",
        "--seats-per-reservation", "6", "--waiting-room", "off", "--city", "Elsinore",
        "--payment-seconds", "45", "--returns", "until=48,fees=refunded",
        "--timezone", "Europe/Copenhagen", "--description", "To be",
        "--doors", "2190-05-01T19:00", "--ends", "2190-05-01T22:30",
    )  # fmt: skip
    assert "hamlet: published, http" in message
    assert "/events/hamlet/" in message
    view = facade.get_event("hamlet")
    assert (view.policy.hold_seconds, view.policy.per_buyer_max, view.policy.seats_per_reservation_max) == (420, 4, 6)
    assert view.policy.payment_seconds == 45
    assert return_policies().read(view.id) == ReturnTerms(48, keeps_fees=False)
    assert (view.doors_at, view.ends_at) == (
        datetime(2190, 5, 1, 17, tzinfo=UTC), datetime(2190, 5, 1, 20, 30, tzinfo=UTC),
    )  # fmt: skip
    assert (view.city, view.timezone) == ("Elsinore", "Europe/Copenhagen")
    assert [section.slug for section in facade.list_sections(view.id)] == ["stalls", "standing-floor"]


def test_repeating_the_command_changes_nothing_and_other_values_are_listed(plan_file: str) -> None:
    args = ("--plan", plan_file, "--price", "Stalls:4500")
    create(*args)
    assert "nothing changed" in create(*args)[0]
    with pytest.raises(CommandError) as refused:
        create("--plan", plan_file, "--price", "Stalls:4600", "--per-buyer", "2")
    assert refused.value.returncode == 1
    assert "price of “Stalls” is 4500, not 4600" in str(refused.value)
    assert "per-buyer is none, not 2" in str(refused.value)


def test_repeating_the_command_without_draft_publishes_the_draft(plan_file: str) -> None:
    args = ("--plan", plan_file, "--price", "Stalls:4500")
    assert "draft" in create(*args, "--draft")[0]
    assert "published" in create(*args)[0]


def test_a_waiting_room_has_a_rate_and_a_cap_and_is_closed_until_the_on_sale_opens() -> None:
    args = ("--general-admission", "Floor:10:5", "--waiting-room", "rate=20,active=300")
    create(*args)
    room = facade.get_event("hamlet").policy.room
    assert room == facade.WaitingRoomSettings(rate_per_second=20, active_max=300)
    assert "nothing changed" in create(*args)[0]
    with pytest.raises(CommandError, match="waiting-room is rate=20,active=300, not off"):
        create("--general-admission", "Floor:10:5")


def test_a_waiting_room_may_have_a_lobby_before_its_on_sale() -> None:
    room = "rate=20,active=300,lobby=2189-12-31T23:00"
    args = ("--general-admission", "Floor:10:5", "--timezone", "Europe/Oslo", "--on-sale", "2190-01-01T09:00")
    create(*args, "--waiting-room", room)
    configured = facade.get_event("hamlet").policy.room
    assert configured == facade.WaitingRoomSettings(20, 300, datetime(2189, 12, 31, 22, tzinfo=UTC))
    assert "nothing changed" in create(*args, "--waiting-room", room)[0]
    with pytest.raises(CommandError, match=r"active=300,lobby=2189-12-31T22:00:00Z, not rate=20,active=300$"):
        create(*args, "--waiting-room", "rate=20,active=300")


def test_a_draft_with_a_lobby_cannot_be_published_after_its_on_sale_has_opened() -> None:
    args = ("--general-admission", "Floor:10:5", "--on-sale", "2190-01-01T09:00Z")
    args += ("--waiting-room", "rate=20,active=300,lobby=2189-01-01")
    create(*args, "--draft")
    past = clock.now() - timedelta(hours=1)
    OnSale.objects.update(opens_at=past, room_lobby_opens_at=past - timedelta(hours=1))
    with pytest.raises(EventRefused, match="Sales would open at once"):
        publish_event(Event.objects.get().pk)
    assert Event.objects.get().status == "draft"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "nothing to sell"),
        (("--plan", "/no/such/file.json", "--price", "Stalls:1"), "/no/such/file.json: no such file"),
        (("--plan", "", "--price", "Stalls:1"), "directory"),
        (("--plan", "PLAN_FILE"), "no price for “Stalls”"),
        (("--plan", "PLAN_FILE", "--price", "Stalls"), "must be CATEGORY:MINOR"),
        (("--plan", "PLAN_FILE", "--price", ":5"), "must be CATEGORY:MINOR"),
        (("--plan", "PLAN_FILE", "--price", "Stalls:"), "not a whole number"),
        (("--plan", "PLAN_FILE", "--price", "Stalls:45.00"), "not a whole number"),
        (("--plan", "PLAN_FILE", "--price", "Stalls:٤٥"), "not a whole number"),
        (("--plan", "PLAN_FILE", "--price", "Stalls:" + "9" * 5000), "not a whole number"),
        (("--plan", "PLAN_FILE", "--price", "Stalls:-1"), "must be between 0 and"),
        (("--plan", "PLAN_FILE", "--price", "Stalls:1", "--price", "Stalls:2"), "names “Stalls” twice"),
        (("--price", "Stalls:1", "--general-admission", "Floor:10:5"), "the plan has no category for the price of"),
        (("--general-admission", "Floor:10"), "must be NAME:CAPACITY:MINOR"),
        (("--general-admission", "Floor:ten:5"), "not a whole number"),
        (("--general-admission", "Floor:0:5"), "must be between 1 and"),
        (("--general-admission", "Floor:10:5", "--on-sale", "tomorrow"), "not an ISO 8601 time"),
        (("--general-admission", "Floor:10:5", "--on-sale", "2191-01-01"), "open after the event starts"),
        (("--general-admission", "Floor:10:5", "--hold-minutes", "soon"), "not a whole number"),
        (("--general-admission", "Floor:10:5", "--hold-seconds", "29"), "hold seconds must be between 30 and 14400"),
        (("--general-admission", "Floor:10:5", "--hold-seconds", "90", "--hold-minutes", "1"), "not both"),
        (("--general-admission", "Floor:10:5", "--returns", "48"), "as in until=48,fees=kept"),
        (("--general-admission", "Floor:10:5", "--returns", "until=48,fees=all"), "must be kept or refunded"),
        (("--general-admission", "Floor:10:5", "--returns", "until=9000"), "hours for returns must be between 0 and"),
        (("--general-admission", "Floor:10:5", "--per-buyer", "0"), "must be between 1 and"),
        (("--general-admission", "Floor:10:5", "--currency", "dollars"), "ISO 4217"),
        (("--general-admission", "Floor:10:5", "--starts", "2190-02-30"), "not an ISO 8601 time"),
        (("--general-admission", "Floor:10:5", "--starts", "2001-02-03T20:00Z"), "in the past"),
        (("--general-admission", "Floor:10:5", "--starts", "0001-01-01T00:00+14:00"), "out of range"),
        *(
            (("--general-admission", "Floor:10:5", "--waiting-room", room), message)
            for room, message in (
                ("on", "must be off or rate=N,active=N"),
                ("", "must be off or"),
                ("OFF", "must be off or"),
                ("rate=5", "must be off or"),
                ("rate=5,rate=6", "must be off or"),
                ("rate=5,active=6,lobby=now", "--waiting-room lobby 'now' is not an ISO 8601 time"),
                ("rate=5,active=6,lobby=", "is not an ISO 8601 time"),
                ("rate=5,active=6,lobby=2189-01-01,lobby=2189-01-02", "must be off or"),
                ("rate=5,lobby=2189-01-01", "must be off or"),
                ("rate=5,active=6,hall=2189-01-01", "must be off or"),
                ("rate=5,active=6,lobby=2189-01-01", "a lobby needs an on-sale that opens later"),
                ("rate=5,active=many", "not a whole number"),
                ("rate=0,active=5", "must be between 1 and"),
                ("rate=5,active=0", "must be between 1 and"),
            )
        ),
        (
            (
                "--general-admission",
                "Floor:10:5",
                "--on-sale",
                "2190-01-01",
                "--waiting-room",
                "rate=5,active=6,lobby=2190-01-01",
            ),
            "the lobby would open after the on-sale does",
        ),
        (("--general-admission", "Floor:10:5", "--no-such-option", "1"), "unrecognized arguments"),
    ],
)
def test_an_invalid_call_fails_with_one_line_and_writes_nothing(
    plan_file: str, args: tuple[str, ...], message: str
) -> None:
    with pytest.raises(CommandError) as refused:
        create(*(plan_file if arg == "PLAN_FILE" else arg for arg in args))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.returncode == 1
    assert not Event.objects.exists()
    assert not Venue.objects.exists()


def test_a_plan_error_names_the_file_and_the_location(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(encoded(plan([block("Stalls", 1, 2, category="Nowhere")])))
    with pytest.raises(CommandError, match=r"bad\.json: zones\[0\]\.rows\[0\]\.seats\[0\]\.category: "):
        create("--plan", str(path), "--price", "Stalls:1")


def test_parts_of_the_plan_that_are_left_out_are_listed(tmp_path: Path) -> None:
    document = plan()
    document["zones"][0]["areas"] = [{"shape": "star", "position": {"x": 0, "y": 0}}]
    path = tmp_path / "star.json"
    path.write_bytes(encoded(document))
    assert "the shape “star” is not drawn" in create("--plan", str(path), "--price", "Stalls:1")[1]


def test_a_csv_plan_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("section,row,seat,x,y,category,accessible\nStalls,A,1,10,10,Gold,yes\nStalls,A,2,35,10,Gold,\n")
    create("--plan", str(path), "--price", "Gold:4500")
    assert list(Seat.objects.values_list("guid", "accessible")) == [("stalls-A-1", True), ("stalls-A-2", False)]
    assert Section.objects.get().event.plan.name == "plan"


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "required: SLUG"),
        (["hamlet"], "required: --name"),
        (["hamlet", "--name", "H", "--venue", "V", "--starts", "soon", "--currency", "USD"], "not an ISO 8601 time"),
        (["hamlet", "--nonsense"], "required"),
    ],
)
def test_from_a_shell_an_invalid_call_is_one_line_on_stderr_and_exit_1(args: list[str], message: str) -> None:
    run = subprocess.run(
        [sys.executable, "manage.py", "create_event", *args],
        cwd=CHECKOUT, env=os.environ | {"DATABASE_URL": database_url()},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode == 1
    assert len(run.stderr.strip().splitlines()) == 1, run.stderr
    assert message in run.stderr


@pytest.mark.parametrize("seats", [1, 30, 601])
def test_the_measured_plan_has_exactly_the_requested_seats(seats: int) -> None:
    assert parse_plan(json.dumps(_sample_plan(seats)).encode()).seat_count == seats
