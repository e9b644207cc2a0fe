"""Attacks on passwords: every check has the same limits, in all processes, and hashing never takes all threads."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.hashers import MD5PasswordHasher
from django.http import HttpResponse
from django.test import Client, RequestFactory

from apps.accounts.models import User
from apps.accounts.passwords import attempts, hasher
from apps.kernel import rate_limits
from apps.kernel.http import problems
from apps.kernel.rate_limits.limits import Limits
from apps.kernel.rate_limits.sharing import Sharing
from tests.support.accounts.credentials import LOG_IN, PASSWORD
from tests.support.api_client import Api, assert_problem
from tests.support.races import storm, values

TOKEN = "/api/auth/token"
SAME_ORIGIN: dict[str, Any] = {"headers": {"sec-fetch-site": "same-origin"}}
OFFICE, ELSEWHERE = "203.0.113.9", "198.51.100.7"


class CountingHasher(MD5PasswordHasher):
    count = 0

    def encode(self, password: str, salt: str) -> str:
        type(self).count += 1
        return super().encode(password, salt)


@pytest.fixture
def hashes(ann: User, chief: User, settings: Any) -> Iterator[type[CountingHasher]]:
    """Counts the passwords that are hashed from now on."""
    settings.PASSWORD_HASHERS = [f"{__name__}.CountingHasher"]
    CountingHasher.count = 0
    return CountingHasher


def post(
    path: str, name: str, password: str = "guessed", *, address: str = OFFICE, browser: Client | None = None
) -> Any:
    """Send a name and a password from this address; return the status."""
    client = browser or Client(**SAME_ORIGIN)
    form = {"username": name, "password": password}
    kind = {"content_type": "application/json"} if path == TOKEN else {}
    return client.post(path, form, REMOTE_ADDR=address, **kind)


def test_180_wrong_posts_to_the_admins_log_in_hash_no_password(hashes: type[CountingHasher]) -> None:
    for _ in range(180):
        response = post("/admin/login/", "chief")
        assert (response.status_code, response.url) == (302, "/accounts/log-in?next=/admin/")
    assert hashes.count == 0


@pytest.mark.parametrize("path", [LOG_IN, TOKEN])
def test_40_wrong_passwords_for_one_name_are_hashed_10_times(hashes: type[CountingHasher], path: str) -> None:
    statuses = [post(path, "chief").status_code for _ in range(40)]
    assert statuses[:10] == [401 if path == TOKEN else 200] * 10
    assert set(statuses[10:]) == {429}
    assert hashes.count == 10


@pytest.mark.parametrize("path", [LOG_IN, TOKEN])
def test_60_names_from_one_address_are_hashed_30_times(hashes: type[CountingHasher], path: str) -> None:
    statuses = [post(path, f"name-{number}@example.org").status_code for number in range(60)]
    assert hashes.count == 30
    assert set(statuses[30:]) == {429}
    assert post(path, "ann@example.org", PASSWORD, address=ELSEWHERE).status_code in (200, 302)


def test_a_refusal_says_when_to_try_again(api: Api, hashes: type[CountingHasher]) -> None:
    for _ in range(10):
        api.post("/auth/token", {"username": "chief", "password": "guessed"})
    refused = api.post("/auth/token", {"username": "chief", "password": "guessed"})
    assert_problem(refused, 429, "rate-limited")
    assert int(refused.headers["Retry-After"]) >= 1


def test_the_rows_of_one_ipv6_network_are_one_address(hashes: type[CountingHasher]) -> None:
    for number in range(60):
        post(LOG_IN, f"name-{number}", address=f"2001:db8::{number:x}")
    assert hashes.count == 30


def test_all_endpoints_share_the_limit(hashes: type[CountingHasher], ann: User) -> None:
    """The log-in page, the token endpoint, the confirmation of the password and the change of the password."""
    browser = Client(**SAME_ORIGIN)
    browser.force_login(ann)
    attempts = [
        lambda: post(LOG_IN, ann.username),
        lambda: post(TOKEN, ann.username),
        lambda: browser.post("/accounts/confirm", {"password": "guessed"}, REMOTE_ADDR=OFFICE),
        lambda: browser.post(
            "/accounts/password",
            {"oldpassword": "guessed", "password1": "a new one of length", "password2": "a new one of length"},
            REMOTE_ADDR=OFFICE,
        ),
    ]
    statuses = [attempt().status_code for _ in range(3) for attempt in attempts]
    assert statuses[10:] == [429, 429]
    assert hashes.count == 10


def test_hundreds_of_buyers_behind_one_address_log_in(ann: User) -> None:
    """Only wrong passwords count."""
    assert {post(LOG_IN, ann.username, PASSWORD).status_code for _ in range(40)} == {302}


def test_an_exempt_network_may_not_guess_passwords(hashes: type[CountingHasher]) -> None:
    """The tests' own network, 127.0.0.0/8, is exempt from other limits."""
    for number in range(60):
        post(LOG_IN, f"name-{number}", address="127.0.0.1")
    assert hashes.count == 30


@pytest.mark.slow
def test_an_account_has_a_limit_for_all_addresses_and_its_owners_browser_and_network_none(
    hashes: type[CountingHasher], ann: User
) -> None:
    owner = Client(**SAME_ORIGIN)
    assert post(LOG_IN, ann.username, PASSWORD, browser=owner).status_code == 302
    owner.post("/accounts/log-out")
    for number in range(105):
        post(LOG_IN, ann.username, address=f"198.51.{number}.1")
    assert hashes.count == 101
    assert post(LOG_IN, ann.username, PASSWORD, address=ELSEWHERE).status_code == 429
    assert post(TOKEN, ann.username, PASSWORD).status_code == 200, "the owner's network"
    assert post(LOG_IN, ann.username, PASSWORD, browser=owner, address=ELSEWHERE).status_code == 302
    known = owner.cookies["known_browser"].value
    thief = Client(**SAME_ORIGIN)
    thief.cookies["known_browser"] = known
    assert [post(LOG_IN, ann.username, browser=thief).status_code for _ in range(11)][-1] == 429


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def limit_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the limits of attempts, which the test sets."""
    clock = Clock()
    limits = Limits(settings.RATE_LIMITS, time=clock)
    monkeypatch.setattr(rate_limits, "attempt_wait", limits.attempt_wait)
    monkeypatch.setattr(rate_limits, "record_attempt", limits.record_attempt)
    return clock


def guesses_in_an_hour(name: str, address: str, clock: Clock) -> list[bool]:
    """Guess as often as the limit of a name and address allows, at the addresses that the format gives; return which
    guesses were accepted."""
    accepted = []
    for number in range(360):
        request = RequestFactory().post(LOG_IN, REMOTE_ADDR=address.format(number % 100))
        try:
            attempts.require_attempts_left(request, name)
        except problems.RateLimited:
            accepted.append(False)
        else:
            attempts.record_failure(request, name)
            accepted.append(True)
        clock.now += 10
    return accepted


@pytest.mark.parametrize("network", [OFFICE, "2001:db8:77::1", "2001:db8:77:{}::1"])
def test_guesses_from_one_network_do_not_lock_the_owner_out_elsewhere(
    hashes: type[CountingHasher], ann: User, limit_clock: Clock, network: str
) -> None:
    assert 20 <= sum(guesses_in_an_hour(ann.username, network, limit_clock)) < 40, "a fifth, and what refills"
    assert post(LOG_IN, ann.username, PASSWORD, address=network.format(1)).status_code == 429
    for address in (ELSEWHERE, "203.0.113.10", "2001:db8:78::1"):
        assert post(LOG_IN, ann.username, PASSWORD, address=address).status_code == 302
        assert post(TOKEN, ann.username, PASSWORD, address=address).status_code == 200


def test_a_networks_part_is_the_same_for_known_and_unknown_names(
    hashes: type[CountingHasher], ann: User, limit_clock: Clock
) -> None:
    """Also in a network in which the account has logged in."""
    assert post(LOG_IN, ann.username, PASSWORD).status_code == 302
    known, unknown = (guesses_in_an_hour(name, OFFICE, limit_clock) for name in (ann.username, "bob@example.org"))
    assert known == unknown
    assert False in known


def test_clients_without_an_address_share_no_networks_part(limit_clock: Clock) -> None:
    assert sum(guesses_in_an_hour("ann@example.org", "", limit_clock)) > 100


def test_two_processes_share_the_limit_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts alternate between two processes, which share their counts after each: together they allow one more."""
    processes = [Limits({"password": ((0.1, 30), (0.1, 10))}) for _ in range(2)]
    sharings = [Sharing(limits.buckets, limits.time) for limits in processes]
    allowed = 0
    for number in range(40):
        limits, sharing = processes[number % 2], sharings[number % 2]
        if limits.attempt_wait("password", OFFICE, "chief") is None:
            allowed += 1
            limits.record_attempt("password", OFFICE, "chief")
        sharing.share()
    assert allowed <= 11


def test_without_redis_each_process_keeps_its_limit(own_redis: Any, hashes: type[CountingHasher]) -> None:
    own_redis.kill()
    for _ in range(20):
        post(LOG_IN, "chief")
    assert hashes.count == 10


@pytest.fixture
def real_hasher(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PASSWORD_HASHERS = ["apps.accounts.passwords.hasher.BoundedPasswordHasher"]
    monkeypatch.setattr(hasher.BoundedPasswordHasher, "iterations", 1)


@pytest.mark.usefixtures("ann", "real_hasher")
@pytest.mark.parametrize("path", [LOG_IN, TOKEN, "/accounts/sign-up"])
def test_a_second_password_is_refused_at_once_while_one_is_hashed(path: str) -> None:
    assert hasher._slots.acquire(blocking=False)
    try:
        refused = post(path, "bob@example.org", PASSWORD)
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) >= 1
        assert refused.headers[hasher.RETRY_HEADER] == "busy"
    finally:
        hasher._slots.release()
    assert post(path, "bob@example.org", PASSWORD).status_code in (200, 302, 401)


@pytest.mark.usefixtures("real_hasher")
@pytest.mark.django_db(transaction=True)
def test_a_storm_of_log_ins_hashes_one_password_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, lock = 0, 0, threading.Lock()
    encode = hasher.PBKDF2PasswordHasher.encode

    def counted(self: Any, *args: Any) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        try:
            return encode(self, *args)
        finally:
            with lock:
                running -= 1

    monkeypatch.setattr(hasher.PBKDF2PasswordHasher, "encode", counted)
    statuses = values(storm(8, lambda number: post(TOKEN, f"name-{number}").status_code))
    assert set(statuses) <= {401, 503}
    assert 401 in statuses
    assert most == 1


def test_a_very_long_password_is_not_hashed(hashes: type[CountingHasher]) -> None:
    assert post(LOG_IN, "chief", "x" * 1_001).status_code == 200
    assert hashes.count == 0


def test_the_limits_have_settings() -> None:
    assert {"password", "account", "mail"} <= set(rate_limits.KINDS)


@pytest.mark.parametrize("name", ["name-{}", "ann@example.org"])
def test_others_behind_the_same_address_do_not_lock_out_a_known_browser(
    hashes: type[CountingHasher], ann: User, name: str
) -> None:
    owner = Client(**SAME_ORIGIN)
    assert post(LOG_IN, ann.username, PASSWORD, browser=owner).status_code == 302
    owner.post("/accounts/log-out")
    for number in range(35):
        post(LOG_IN, name.format(number))
    assert post(LOG_IN, ann.username, PASSWORD).status_code == 429, "another browser behind this address"
    assert post(LOG_IN, ann.username, PASSWORD, browser=owner).status_code == 302
    owner.post("/accounts/log-out")
    assert [post(LOG_IN, ann.username, browser=owner).status_code for _ in range(11)][-1] == 429


def test_a_known_browser_has_ten_guesses_for_a_whole_ipv6_48(ann: User) -> None:
    response = HttpResponse()
    attempts.set_known_browser_cookie(RequestFactory().get("/"), response, ann)

    def guess(number: int) -> None:
        request = RequestFactory().post(LOG_IN, REMOTE_ADDR=f"2001:db8:77:{number}::1")
        request.COOKIES[attempts.KNOWN_BROWSER_COOKIE] = response.cookies[attempts.KNOWN_BROWSER_COOKIE].value
        attempts.require_attempts_left(request, ann.username)
        attempts.record_failure(request, ann.username)

    for number in range(10):
        guess(number)
    with pytest.raises(problems.RateLimited):
        guess(10)
