"""`manage.py check_in`: check-in from a terminal."""

import io
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from apps.kernel import clock
from apps.orders.models import Order, TicketScan
from tests.support.factories import hold, make_event
from tests.support.orders.sale import buy

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order() -> Order:
    return buy(hold(make_event("concert", starts_at=clock.now() + timedelta(hours=1)), seats=["hall-A-1", "hall-A-2"]))


def run(*words: str, typed: str = "", monkeypatch: pytest.MonkeyPatch | None = None) -> str:
    if monkeypatch is not None:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    out = io.StringIO()
    try:
        call_command("check_in", *words, stdout=out)
    except CommandError as error:
        return f"{out.getvalue()}error: {error}"
    return out.getvalue()


def test_codes_on_the_command_line_are_checked_in_once(order) -> None:
    one, other = order.tickets.order_by("id").values_list("code", flat=True)
    output = run("concert", one, other, "--door", "North", "--who", "vera")
    assert [line.split()[0] for line in output.splitlines()] == ["welcome", "welcome"]
    assert "Hall, row A, seat 1" in output
    again = run("concert", one, "nonsense")
    assert [line.split()[0] for line in again.splitlines()] == ["already_in", "unknown", "error:"]
    assert "2 refused" in again
    assert "North" in again
    assert set(TicketScan.objects.filter(door="North").values_list("who", flat=True)) == {"command:vera"}


def test_codes_can_be_given_by_line(order, monkeypatch) -> None:
    one, other = order.tickets.order_by("id").values_list("code", flat=True)
    output = run("concert", typed=f"{one}\n\n {other.lower()} \n", monkeypatch=monkeypatch)
    assert [line.split()[0] for line in output.splitlines()] == ["welcome", "welcome"]


def test_check_ins_are_undone_and_counted(order) -> None:
    one, other = order.tickets.order_by("id").values_list("code", flat=True)
    run("concert", one, other)
    assert run("concert", one, "--undo").startswith("undone")
    assert run("concert", one, "--undo").startswith("not_undone")
    counts = [line.split() for line in run("concert", "--count").splitlines()]
    assert counts == [["1", "of", "2", "in", "Hall"], ["1", "of", "2", "in", "Concert"]]


def test_an_unknown_event_is_reported_in_one_line(db) -> None:
    assert run("nowhere", "A").startswith("error: 'nowhere': there is no published event")
