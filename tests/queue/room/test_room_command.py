"""`manage.py room`: each act prints one line and is recorded; a refused act prints one line and changes nothing."""

import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from apps.events import facade as events
from apps.kernel import cli
from apps.queue.management.commands import room as command
from apps.queue.models import QueueEntry, RoomAct, VipLink, WaitingRoom
from tests.support.factories import join
from tests.support.queue.rooms import join_waiting_entries, make_room, open_now

pytestmark = pytest.mark.django_db


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("room", *words, stdout=out)
    return out.getvalue().strip()


def refusal(*words: str) -> str:
    with pytest.raises(CommandError) as refused:
        run(*words)
    text = str(refused.value)
    assert "\n" not in text
    return text


@pytest.fixture
def event(db: None) -> events.EventView:
    event = make_room(active=2, general_admission=20)
    join_waiting_entries(event, 4)
    return event


def test_each_act_prints_one_line_and_is_recorded(event: events.EventView) -> None:
    assert run("concert", "pause", "--why", "the till is down") == "concert: paused"
    assert run("concert", "pause") == "concert: was paused already"
    assert run("concert", "message", "Back at 8.") == "concert: waiting visitors now see the message"
    assert run("concert", "message", "Back at 8.") == "concert: the message is unchanged"
    assert run("concert", "limits", "--rate", "25", "--active", "3") == "concert: 25/s, 3 active"
    assert run("concert", "floor", "5") == "concert: it is never reduced below 5/s"
    assert run("concert", "floor", "5") == "concert: it is never reduced below 5/s, unchanged"
    assert run("concert", "floor", "auto") == "concert: it is never reduced below 2.5/s, a tenth"
    assert run("concert", "limits", "--active", "3") == "concert: 25/s, 3 active, unchanged"
    assert run("concert", "admit", "1") == "concert: 1 of 1 admitted"
    assert run("concert", "let-through", "4", "--who", "the boss") == "concert: 4 is admitted"
    assert run("concert", "remove", "3") == "concert: 3 was removed"
    assert run("concert", "remove", "3") == "concert: 3 had ended already"
    assert run("concert", "message", "--clear") == "concert: the message was removed"
    assert run("concert", "open") == "concert: open"
    username = cli.get_os_username()
    assert [(act.who, act.what, act.detail, act.why) for act in RoomAct.objects.order_by("id")] == [
        (username, "state", "open → paused", "the till is down"),
        (username, "message", "Back at 8.", ""),
        (username, "limits", "10/s, 2 active → 25/s, 3 active", ""),
        (username, "limits", "floor a tenth → 5/s", ""),
        (username, "limits", "floor 5/s → a tenth", ""),
        (username, "admit", "1 of 1", ""),
        ("the boss", "let in", "number 4", ""),
        (username, "remove", "number 3, waiting", ""),
        (username, "message", "cleared", ""),
        (username, "state", "paused → open", ""),
    ]


def test_show_prints_the_state_of_the_room(event: events.EventView) -> None:
    WaitingRoom.objects.update(rate_now=2.5, supply_available=1234, supply_held=6)
    run("concert", "admit", "1", "--why", "first night")
    run("concert", "message", "Hello\nall")
    shown = run("concert", "show")
    for words in (
        "Concert (concert): open", "waiting    3", "shopping   1 of 2",
        "2.5/s, reduced from 10/s to protect the system",
        "1 admitted during the last minute", "numbers    1 reached of 4", "1,234 available, 6 reserved",
        "message    Hello / all",
        "never reduced below 1/s", "VIP links  0 open", "admitted manually, 1 of 1 (first night)",
    ):  # fmt: skip
        assert words in shown


def test_destructive_acts_ask_for_confirmation(event: events.EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.sys, "stdin", io.StringIO())
    assert "4 waiting" in refusal("concert", "drain")
    assert "--yes" in refusal("concert", "off")
    assert WaitingRoom.objects.get().state == "open"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(command.sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda _: "no")
    assert "nothing was changed" in refusal("concert", "drain")
    monkeypatch.setattr("builtins.input", lambda _: "yes")
    assert run("concert", "drain").endswith("concert: drained")
    assert run("concert", "open") == "concert: open"
    assert run("concert", "off", "--yes") == "concert: off"


def test_a_link_is_created_listed_and_withdrawn(event: events.EventView) -> None:
    assert run("concert", "links") == "there are no links"
    address, words = run("concert", "link", "--note", "Ann", "--hours", "2").splitlines()
    assert "/events/concert/vip/" in address
    link = VipLink.objects.get()
    assert words == f"concert: valid once, for 2 h; its id is {link.pk}"
    assert "open" in run("concert", "links")
    assert run("concert", "revoke", str(link.pk)) == "concert: the link is revoked"
    assert run("concert", "revoke", str(link.pk)) == "concert: the link was revoked already"
    assert "revoked" in run("concert", "links")
    assert "Ann" in run("concert", "links")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("nowhere", "show"), "there is no published event"),
        (("no\0where", "show"), "there is no published event"),
        (("concert", "dance"), "invalid choice"),
        (("concert",), "ACT"),
        (("concert", "limits"), "give at least one of"),
        (("concert", "limits", "--rate", "many"), "not a whole number"),
        (("concert", "limits", "--rate", "0"), "the rate must be between"),
        (("concert", "floor", "11"), "the floor must be between 1 and the rate, 10"),
        (("concert", "floor", "none"), "not a whole number"),
        (("concert", "limits", "--rate", "1" * 30), "not a whole number"),
        (("concert", "admit", "0"), "between 1 and"),
        (("concert", "admit", "-1"), "between 1 and"),
        (("concert", "admit"), "N"),
        (("concert", "message"), "give either TEXT"),
        (("concert", "message", "x", "--clear"), "give either TEXT"),
        (("concert", "message", "x" * 281), "at most 280"),
        (("concert", "let-through", "99"), "there is no entry 99"),
        (("concert", "let-through", "you"), "neither a queue number"),
        (("concert", "link", "--hours", "0"), "valid for 1 to"),
        (("concert", "revoke", "x"), "not a link's id"),
        (("concert", "revoke", "00000000-0000-0000-0000-000000000000"), "has no link"),
    ],
)
def test_a_refusal_is_one_line(event: events.EventView, words: tuple[str, ...], expected: str) -> None:
    assert expected in refusal(*words)
    assert not RoomAct.objects.filter(refusal="").exists()


def test_refused_acts_are_recorded_with_their_reason(event: events.EventView) -> None:
    """Not recorded: a command that cannot be parsed, and a question that was not answered with yes."""
    for words in (
        ("floor", "11", "--who", "ann", "--why", "too busy"),
        ("limits", "--rate", "many"),
        ("admit", "0"),
        ("message", "x" * 281),
        ("let-through", "99\n<b>"),
        ("remove", "99"),
        ("link", "--hours", "0"),
        ("revoke", "x"),
        ("drain",),
        ("admit",),
        ("dance",),
    ):
        refusal("concert", *words)
    run("concert", "drain", "--yes")
    refusal("concert", "admit", "1")
    refused = RoomAct.objects.exclude(refusal="").order_by("id")
    username = cli.get_os_username()
    assert [(act.who, act.what, act.detail, act.refusal, act.why) for act in refused][:4] == [
        ("ann", "limits", "floor rate=11", "the floor must be between 1 and the rate, 10", "too busy"),
        (username, "limits", "limits rate=many", "--rate 'many' is not a whole number in range", ""),
        (username, "admit", "admit count=0", "admit between 1 and 10000", ""),
        (username, "message", "message", "a message has at most 280 characters; this one has 281", ""),
    ]
    assert [(act.what, act.detail) for act in refused][4:] == [
        ("let in", "let-through whom=99 <b>"),
        ("remove", "remove whom=99"),
        ("vip link", "link hours=0"),
        ("vip link", "revoke link=x"),
        ("admit", "admit count=1"),
    ]
    assert "message: refused, a message has at most 280" in run("concert", "show")


def test_a_closed_room_is_opened_only_by_its_on_sale() -> None:
    make_room()
    assert "cannot become open" in refusal("concert", "open")
    assert "visitors cannot be admitted manually" in refusal("concert", "admit", "1")


def test_acts_of_an_os_user_without_a_name_are_recorded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_key_error() -> Any:
        raise KeyError("uid not found")

    monkeypatch.setattr(cli.getpass, "getuser", raise_key_error)
    event = make_room()
    open_now(event)
    join(event)
    run("concert", "remove", "1")
    assert RoomAct.objects.get().who.startswith("uid ")
    assert QueueEntry.objects.get().status == "left"
