"""What may be asked of `manage.py simulate`, and how it says no: in one line."""

import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command

from tests.support.servers import CHECKOUT
from ticketing.management.commands import simulate
from ticketing.simulator.plan import PlanRefused, addresses_of, check_base, is_loopback
from ticketing.simulator.queue_rules import ObservedQueue, claims_of, number_of
from ticketing.simulator.stats import Breaches, most_within, passes_rate, per_second, percentiles

NOBODY = "http://127.0.0.1:1"


def refused(*args: str, event: str = "concert", visitors: str = "5", over: str = "1", url: str = NOBODY) -> str:
    with pytest.raises(CommandError) as error:
        call_command("simulate", event, "--visitors", visitors, "--over", over, "--url", url, *args)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--buyers", "6"], "6 of 5 visitors"),
        (["--buyers", "150%"], "not a share"),
        (["--buyers", "-1"], "not a whole number"),
        (["--listeners", "many"], "not a whole number"),
        (["--listen-by", "pigeon"], "listen by sse or websocket or poll"),
        (["--listeners", "30000"], "ports for 25,000 streams"),
        (["--for", "1000"], "for must be between 0 and 900"),
        (["--twice", "2"], "not a share"),
        (["--stay", "nan"], "not a number"),
        (["--at-most", "0"], "at most must be between 1 and"),
        (["--connections", "0"], "connections must be between"),
        (["--connections", "١"], "not a whole number"),
        (["--seed", "x"], "not a whole number"),
        (["--seed", "1" * 5000], "not a whole number"),
    ],
)
def test_a_wrong_option_is_one_line(args: list[str], said: str) -> None:
    assert said in refused(*args)


def test_more_listeners_than_files_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate.resource, "getrlimit", lambda _: (256, 1_024))
    monkeypatch.setattr(simulate.resource, "setrlimit", lambda *_: None)
    assert "2,000 listeners and 64 connections need 2,114 open files" in refused("--listeners", "2000")
    assert "may open 1,024 (ulimit -Hn)" in refused("--listeners", "2000")
    assert "nobody answers" in refused("--listeners", "2000", "--listen-by", "poll")
    assert "nobody answers" in refused("--listeners", "500")


def test_wrong_values_are_one_line() -> None:
    assert "visitors must be between 1 and" in refused(visitors="0")
    assert "'1e9' is not a number" in refused(over="1e9")
    assert "no event's slug" in refused(event="../admin")
    assert "nobody answers at http://127.0.0.1:1" in refused()


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://127.0.0.1", "http://127.0.0.1:8000/api", "http://[::1", "http://127.0.0.1:x", ""]
)
def test_an_address_must_look_like_one(url: str) -> None:
    with pytest.raises(PlanRefused, match="is not an address"):
        check_base(url, anywhere=True)


def test_other_machines_are_for_those_who_say_so() -> None:
    assert "192.0.2.1, another machine's" in refused(url="http://192.0.2.1:8000")
    assert check_base("https://192.0.2.1/", anywhere=True) == "https://192.0.2.1"
    assert check_base("http://127.0.0.1:8000/", anywhere=False) == "http://127.0.0.1:8000"
    assert check_base("http://[::1]:8000", anywhere=False) == "http://[::1]:8000"
    with pytest.raises(PlanRefused, match="there is no host"):
        addresses_of("no such host.invalid", 80)


@pytest.mark.parametrize(
    ("address", "is_own"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", False),
     ("::ffff:192.0.2.1", False), ("10.0.0.1", False), ("fe80::1%eth0", False)],
)  # fmt: skip
def test_what_is_this_machine_s_own(address: str, is_own: bool) -> None:
    assert is_loopback(address) == is_own


@pytest.mark.slow
def test_from_the_shell_it_is_one_line_and_status_1_too() -> None:
    for args in (["concert"], ["concert", "--visitors", "x", "--over", "1"], ["concert", "--nonsense"]):
        done = subprocess.run(
            [sys.executable, "manage.py", "simulate", *args], cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert done.stdout == ""
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert done.stderr.startswith("CommandError: ")


def test_figures_are_what_they_say() -> None:
    assert percentiles([]) == [0, 0, 0, 0]
    assert percentiles(range(1, 101)) == [50, 95, 99, 100]
    assert most_within([0, 0.5, 0.9, 1.0, 1.4, 3], 1.0) == 4
    assert most_within([], 1.0) == 0
    assert per_second([0, 1, 2]) == 1
    assert per_second([1]) == 0


def test_a_rate_may_have_been_saved_up_for_half_a_second_and_no_more() -> None:
    saved_up = [0.0] * 25
    steady = [number / 50 for number in range(500)]
    assert passes_rate(sorted(saved_up + steady), 0.0, 50) is None
    assert passes_rate(sorted(saved_up + steady + [1.0, 1.0, 1.0]), 0.0, 50) is not None
    assert passes_rate([0.0, 0.0, 0.0], 0.0, 0.1) is not None


@pytest.mark.parametrize("token", ["", "x", "a.b", "a.!!.c", "a.bnVsbA.c", "a.eyJudW0iOiB0cnVlfQ.c"])
def test_a_token_that_says_nothing_is_no_trouble(token: str) -> None:
    assert number_of(token) is None
    assert claims_of(token) in ({}, {"num": True})


def test_whoever_may_have_ended_is_not_counted_as_inside() -> None:
    line = ObservedQueue(Breaches(), active_max=2)
    for number, visitor in enumerate("abc", start=1):
        line.admitted(visitor, number, at=10.0, seconds_left=300)
        if visitor == "a":
            line.may_have_ended("a")
    assert (line.active_most, line.breaches.counts) == (2, {})
    line.admitted("d", 4, at=10.0, seconds_left=300)
    assert line.breaches.counts["too many inside"] == 1
    line.holds("d", 10.0, 900)
    line.admitted("e", 5, at=400.0, seconds_left=300)
    assert line.active == 2, "b and c have lapsed, d holds"
