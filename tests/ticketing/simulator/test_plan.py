"""The options of `manage.py simulate`: invalid ones are refused in one line."""

import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command

from tests.support.servers import CHECKOUT
from ticketing.management.commands import simulate
from ticketing.simulator.plan import PlanRefused, addresses_of, check_base, is_loopback
from ticketing.simulator.queue_rules import ObservedQueue, claims_of, number_of
from ticketing.simulator.stats import Breaches, most_within, passes_rate, per_second, percentiles

UNREACHABLE = "http://127.0.0.1:1"


def refused(*args: str, event: str = "concert", visitors: str = "5", over: str = "1", url: str = UNREACHABLE) -> str:
    with pytest.raises(CommandError) as error:
        call_command("simulate", event, "--visitors", visitors, "--over", over, "--url", url, *args)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--buyers", "6"], "6 is more than the 5 visitors"),
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
def test_an_invalid_option_is_refused_in_one_line(args: list[str], message: str) -> None:
    assert message in refused(*args)


def test_more_listeners_than_open_files_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate.resource, "getrlimit", lambda _: (256, 1_024))
    monkeypatch.setattr(simulate.resource, "setrlimit", lambda *_: None)
    assert "2,000 listeners and 64 connections need 2,114 open files" in refused("--listeners", "2000")
    assert "may open 1,024 (ulimit -Hn)" in refused("--listeners", "2000")
    assert "no response" in refused("--listeners", "2000", "--listen-by", "poll")
    assert "no response" in refused("--listeners", "500")


def test_invalid_values_are_refused_in_one_line() -> None:
    assert "visitors must be between 1 and" in refused(visitors="0")
    assert "'1e9' is not a number" in refused(over="1e9")
    assert "not an event's id" in refused(event="../admin")
    assert "no response from http://127.0.0.1:1" in refused()


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://127.0.0.1", "http://127.0.0.1:8000/api", "http://[::1", "http://127.0.0.1:x", ""]
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(PlanRefused, match="is not a URL"):
        check_base(url, anywhere=True)


def test_other_machines_need_an_explicit_option() -> None:
    assert "192.0.2.1, another machine;" in refused(url="http://192.0.2.1:8000")
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
def test_loopback_addresses_are_recognized(address: str, is_own: bool) -> None:
    assert is_loopback(address) == is_own


@pytest.mark.slow
def test_from_a_shell_an_invalid_call_is_one_line_and_status_1() -> None:
    for args in (["concert"], ["concert", "--visitors", "x", "--over", "1"], ["concert", "--nonsense"]):
        done = subprocess.run(
            [sys.executable, "manage.py", "simulate", *args], cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert done.stdout == ""
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert done.stderr.startswith("CommandError: ")


def test_percentiles_rates_and_maxima() -> None:
    assert percentiles([]) == [0, 0, 0, 0]
    assert percentiles(range(1, 101)) == [50, 95, 99, 100]
    assert most_within([0, 0.5, 0.9, 1.0, 1.4, 3], 1.0) == 4
    assert most_within([], 1.0) == 0
    assert per_second([0, 1, 2]) == 1
    assert per_second([1]) == 0


def test_half_a_second_of_admissions_may_be_saved_up_and_no_more() -> None:
    saved_up = [0.0] * 25
    steady = [number / 50 for number in range(500)]
    assert passes_rate(sorted(saved_up + steady), 0.0, 50) is None
    assert passes_rate(sorted(saved_up + steady + [1.0, 1.0, 1.0]), 0.0, 50) is not None
    assert passes_rate([0.0, 0.0, 0.0], 0.0, 0.1) is not None


@pytest.mark.parametrize("token", ["", "x", "a.b", "a.!!.c", "a.bnVsbA.c", "a.eyJudW0iOiB0cnVlfQ.c"])
def test_an_undecodable_token_has_no_number(token: str) -> None:
    assert number_of(token) is None
    assert claims_of(token) in ({}, {"num": True})


def test_a_visitor_whose_admission_may_have_ended_is_not_active() -> None:
    line = ObservedQueue(Breaches(), active_max=2)
    for number, visitor in enumerate("abc", start=1):
        line.admitted(visitor, number, at=10.0, seconds_left=300)
        if visitor == "a":
            line.may_have_ended("a")
    assert (line.active_most, line.breaches.counts) == (2, {})
    line.admitted("d", 4, at=10.0, seconds_left=300)
    assert line.breaches.counts["cap exceeded"] == 1
    line.holds("d", 10.0, 900)
    line.admitted("e", 5, at=400.0, seconds_left=300)
    assert line.active == 2, "b and c have expired, d has a hold"
