"""Rate limits: many buyers behind one address can buy, a script cannot, and any number of addresses uses bounded
memory."""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from hypothesis import given
from hypothesis import strategies as some
from redis import Redis

from apps.kernel import rate_limits, redis
from apps.kernel.http import client_address
from apps.kernel.rate_limits import buckets, kinds
from apps.kernel.rate_limits.buckets import Buckets
from apps.kernel.rate_limits.limits import Limits
from apps.kernel.rate_limits.sharing import Sharing

OFFICE = "203.0.113.9"


@dataclass
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Deployment:
    """The limits of a production deployment, with a clock that the test sets."""

    clock: Clock = field(default_factory=Clock)
    rates: Any = field(default_factory=lambda: settings.RATE_LIMITS)

    def __post_init__(self) -> None:
        self.limits = Limits(self.rates, time=self.clock)

    def ask(self, kind: str, address: str = OFFICE, token: str = "") -> float | None:
        return self.limits.ask(kind, address, token)

    def allowed(self, kind: str, count: int, address: str = OFFICE, token: str = "") -> int:
        return sum(self.ask(kind, address, token) is None for _ in range(count))


def test_every_kind_has_its_limits() -> None:
    assert set(settings.RATE_LIMITS) == set(rate_limits.KINDS)
    assert all(of_token for kind, (_, of_token) in settings.RATE_LIMITS.items() if kind != "webhook")


def test_five_hundred_buyers_behind_one_address_can_buy() -> None:
    """A school, an office, a mobile carrier: all of them open the page and join in the first minute, poll every other
    second, read availability, hold, change their selection once, pay and look at their order, within ten minutes."""
    deployment = Deployment()
    people = [f"person-{number}" for number in range(500)]
    refused = []

    def ask(kind: str, person: str) -> None:
        if (wait := deployment.ask(kind, OFFICE, person)) is not None:
            refused.append((deployment.clock.now, kind, person, wait))

    for second in range(600):
        for number, person in enumerate(people):
            # Half of them join in the very first second, the others during the first minute.
            begins = 0 if number % 2 else number * 60 // 500
            since = second - begins
            if since == 0:
                for kind in ("page", "page", "join", "page"):
                    ask(kind, person)
            elif since > 0 and since % 2 == 0:
                ask("poll", person)
            if since > 0 and since % 5 == 0:
                ask("read", person)
            # They are admitted over four minutes.
            bought = since - 60 - number % 240
            if bought in (0, 20):
                ask("page", person)
                ask("hold", person)
            elif bought in (40, 45):
                ask("page", person)
                ask("write", person)
        deployment.clock.now += 1
    assert refused == []


def test_a_script_is_limited_by_its_token_without_affecting_its_neighbors() -> None:
    deployment = Deployment()
    rate, burst = settings.RATE_LIMITS["hold"][1]
    assert deployment.allowed("hold", 5_000, token="script") == burst
    assert deployment.ask("hold", token="neighbor") is None
    deployment.clock.now += 10
    assert deployment.allowed("hold", 5_000, token="script") == 10 * rate


def test_an_address_is_limited_however_many_tokens_it_invents() -> None:
    deployment = Deployment()
    burst = settings.RATE_LIMITS["join"][0][1]
    assert sum(deployment.ask("join", token=f"new {number}") is None for number in range(5_000)) == burst
    assert deployment.ask("join", "203.0.113.10") is None
    assert deployment.ask("poll") is None, "each kind has its own limit"


def test_refused_clients_are_asked_to_retry_when_there_is_capacity_at_spread_times() -> None:
    deployment = Deployment(rates={"join": ((10.0, 100), None)})
    assert deployment.allowed("join", 100) == 100
    waits = [deployment.ask("join") for _ in range(300)]
    finite = [wait for wait in waits if wait is not None]
    assert len(finite) == 300
    longest = 1 + buckets.WAIT_SECONDS_MAX * (1 + buckets.JITTER_SHARE)
    assert all(1 <= wait <= longest for wait in finite)
    spread = [sum(second <= wait < second + 5 for wait in finite) for second in (1, 6, 11, 16)]
    assert max(spread) < 150, "they do not all return at once"
    deployment.clock.now += longest
    assert deployment.allowed("join", 100) == 100


def test_a_refused_request_costs_the_address_nothing() -> None:
    deployment = Deployment(rates={"poll": ((1.0, 10), None)})
    deployment.allowed("poll", 10)
    for _ in range(50):
        deployment.clock.now += 0.1
        deployment.ask("poll")
    assert deployment.limits.refused["poll", "address"] == 45, "one request a second is still allowed"


def test_ipv6_is_limited_by_its_64_prefix_and_mapped_ipv4_as_ipv4() -> None:
    deployment = Deployment(rates={"poll": ((1.0, 3), None)})
    same = ["2001:db8::1", "2001:db8:0:0:ffff::2", "2001:0db8::3%eth0"]
    assert [deployment.ask("poll", address) for address in same] == [None] * 3
    assert deployment.ask("poll", "2001:db8::4") is not None
    assert deployment.ask("poll", "2001:db8:0:1::1") is None
    assert [deployment.ask("poll", f"{start}198.51.100.1") for start in ("", "::ffff:", "")] == [None] * 3
    assert deployment.ask("poll", "::FFFF:198.51.100.1") is not None


def test_an_ipv6_48_has_eight_times_the_limits_of_an_address_where_passwords_are_checked() -> None:
    deployment = Deployment()
    networks = [f"2001:db8:1:{number:x}::1" for number in range(100)]

    def allowed(kind: str) -> int:
        return sum(deployment.allowed(kind, 50, address) for address in networks)

    assert allowed("log-in") == 8 * settings.RATE_LIMITS["log-in"][0][1] < 50 * len(networks)
    assert allowed("page") == 50 * len(networks)
    assert deployment.ask("log-in", "2001:db8:2::1") is None
    assert deployment.ask("log-in") is None
    attempts = deployment.limits.attempt_wait
    for number in range(8 * settings.RATE_LIMITS["password"][0][1]):
        assert attempts("password", "2001:db8:1:ffff::1", f"name-{number}") is None
        deployment.limits.record_attempt("password", networks[number % 100], f"name-{number}")
    assert attempts("password", "2001:db8:1:ffff::1", "name") is not None
    assert attempts("password", "2001:db8:2::1", "name") is None


def test_a_network_has_a_fifth_of_a_names_attempts_in_all_processes() -> None:
    """Attempts alternate between two processes, which share their counts after each: together they allow one more."""
    clock = Clock()
    processes = [Limits(settings.RATE_LIMITS, time=clock) for _ in range(2)]
    sharings = [Sharing(limits.buckets, clock) for limits in processes]

    def allowed(count: int) -> int:
        found = 0
        for number in range(count):
            limits, sharing = processes[number % 2], sharings[number % 2]
            if limits.attempt_wait("account-network", "", "ann 203.0.113.9") is None:
                found += limits.record_attempt("account-network", "", "ann 203.0.113.9")
            sharing.share()
        return found

    _, (rate, burst) = settings.RATE_LIMITS["account"]
    assert burst / 5 <= allowed(60) <= burst / 5 + 1
    assert not processes[0].record_attempt("account-network", "", "ann 203.0.113.9"), "it says that it has no room"
    other = Limits({"account": (None, (rate, burst))}, time=clock)
    assert sum(other.record_attempt("account-network", "", "ann") for _ in range(60)) == burst / 5
    clock.now += 10 * 5 / rate
    assert sum(other.record_attempt("account-network", "", "ann") for _ in range(60)) == 10
    assert Limits({"account": (None, None)}).attempt_wait("account-network", "", "ann") is None


def test_requests_of_much_work_have_a_limit_of_their_own() -> None:
    one = Limits({"hold": ((1.0, 10), None)}, time=(clock := Clock()))
    assert one.ask_work("hold", OFFICE, 0) is None
    assert one.ask_work("hold", OFFICE, 5) is None
    assert one.ask_work("hold", OFFICE, 100) is None, "as half a burst"
    assert one.ask_work("hold", OFFICE, 1) is not None
    assert one.ask("hold", OFFICE) is None
    clock.now += 4
    waits = [one.ask_work("hold", OFFICE, 5) for _ in range(3)]
    assert [round(wait or 0, 1) for wait in waits] == [2.0] * 3, "what has no room uses up nothing"
    assert [one.ask_work("hold", OFFICE, 1) for _ in range(4)] == [None] * 4
    assert one.ask_work("hold", OFFICE, 1) is not None
    assert Limits({"hold": (None, None)}).ask_work("hold", OFFICE, 5) is None


def test_an_address_that_asks_too_often_gets_its_rate_of_requests_of_much_work() -> None:
    """It asks fifty times a second for two hundred seconds."""
    one = Limits({"hold": ((5.0, 100), None)}, time=(clock := Clock()))
    allowed = 0
    for _ in range(10_000):
        clock.now += 0.02
        allowed += one.ask_work("hold", OFFICE, 10) is None
    assert 100 <= allowed <= 115


def test_exempt_and_unlimited_requests_are_never_refused() -> None:
    exempt = [ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1")]
    strict = Limits({"poll": ((1.0, 1), (1.0, 1))}, exempt, time=Clock())
    for address in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", ""):
        assert [strict.ask("poll", address, "token") for _ in range(3)] == [None] * 3, address
    assert strict.ask("poll", "128.0.0.1") is None
    assert strict.ask("poll", "128.0.0.1") is not None
    assert [Limits({"poll": (None, None)}).ask("poll", OFFICE, "token") for _ in range(3)] == [None] * 3


def test_a_million_addresses_use_bounded_memory() -> None:
    one = Buckets(1.0, 5, subjects_max=1_000)
    for number in range(20_000):
        one.take(str(number), 1_000.0)
        assert len(one) <= 2_000
    for number in range(20_000):
        one.wait_seconds(str(number), 1_000.0)
    assert len(one._queues) <= 1_000
    deployment = Deployment()
    for number in range(40_000):
        deployment.ask("page", f"2001:db8:{number:x}::1", "x" * 10_000)
    assert len(deployment.limits._subjects) <= 16_384
    assert all(len(subject) <= 64 for _, used in deployment.limits.buckets() for subject in used._recent)


def test_a_client_that_keeps_asking_is_not_evicted_by_others() -> None:
    one = Buckets(1.0, 5, subjects_max=100)
    assert [one.take("script", 1_000.0) for _ in range(6)] == [True] * 5 + [False]
    for number in range(5_000):
        one.take(str(number), 1_000.0)
        if number % 50 == 0:
            assert not one.take("script", 1_000.0)


@given(address=some.text(max_size=100), token=some.text(max_size=300))
def test_any_address_and_any_token_is_accepted_as_input(address: str, token: str) -> None:
    one = Limits({"poll": ((1.0, 2), (1.0, 1))}, time=Clock())
    for _ in range(4):
        one.ask("poll", address, token)


# --- processes -------------------------------------------------------------------------------------------------------


def process(clock: Clock) -> tuple[Limits, Sharing]:
    of_process = Limits({"poll": ((10.0, 160), None), "join": ((10.0, 160), (1.0, 20))}, time=clock)
    return of_process, Sharing(of_process.buckets, of_process.time)


def test_two_processes_share_one_limit(redis_client: Redis) -> None:
    clock = Clock()
    (one, one_shares), (other, other_shares) = process(clock), process(clock)
    allowed = 0
    for _ in range(60):
        for limits_of_process, sharing in ((one, one_shares), (other, other_shares)):
            allowed += sum(limits_of_process.ask("poll", OFFICE) is None for _ in range(10))
            sharing.share()
    # Each allows 160 by itself; each may leave a sixteenth of it unshared, and one round is in progress.
    assert 160 <= allowed <= 160 + 2 * 10 + 2 * 10 + 40
    assert one.ask("poll", OFFICE) is not None
    assert other.ask("poll", OFFICE) is not None
    assert other.ask("poll", "203.0.113.200") is None
    (key,) = redis_client.keys("limits:*")
    assert OFFICE not in key
    assert 0 < redis_client.pttl(key) <= 18_000


def test_occasional_requests_are_not_shared(redis_client: Redis) -> None:
    of_process, sharing = process(Clock())
    for number in range(1_000):
        of_process.ask("poll", f"198.51.{number // 250}.{number % 250}")
    assert sharing.share() == 0
    assert redis_client.keys("limits:*") == []


def test_without_redis_each_process_applies_its_own_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_redis() -> Redis:
        raise redis.RedisUnavailable("refused")

    monkeypatch.setattr(redis, "client", no_redis)
    of_process, sharing = process(Clock())
    assert sum(of_process.ask("poll", OFFICE) is None for _ in range(500)) == 160
    assert sharing.share() == 0
    assert of_process.ask("poll", OFFICE) is not None


def test_unexpected_values_under_a_redis_key_of_limits_do_no_harm(redis_client: Redis) -> None:
    of_process, sharing = process(Clock())
    for planted in ("set", "garbage"):
        for _ in range(100):
            of_process.ask("poll", OFFICE)
        sharing.share()
        for key in redis_client.keys("limits:*"):
            redis_client.delete(key)
            if planted == "set":
                redis_client.sadd(key, "x")
            else:
                redis_client.set(key, "garbage")
        of_process.forget()
        for _ in range(100):
            of_process.ask("poll", OFFICE)
        sharing.share()


def test_the_thread_ends_when_stopped() -> None:
    _, sharing = process(Clock())
    sharing.begin()
    thread = sharing._thread
    assert thread is not None
    sharing.begin()
    assert sharing._thread is thread
    sharing.end()
    assert not thread.is_alive()


# --- the site --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_line", "kind"),
    [
        ("POST /api/events/a/queue", "join"),
        ("POST /events/a/join", "join"),
        ("GET /events/a/join", "page"),
        ("DELETE /api/events/a/queue", "write"),
        ("GET /api/events/a/queue/status", "poll"),
        ("GET /events/a/wait", "poll"),
        ("GET /api/events/a/sections", "read"),
        ("GET /api/events/a/announcements", "read"),
        ("GET /events/a/choose/status.json", "read"),
        ("POST /api/events/a/reservations", "hold"),
        ("POST /events/a/choose", "hold"),
        ("GET /events/a/choose", "page"),
        ("POST /api/events/a/offers", "offer"),
        ("GET /api/events/a/offers", "page"),
        ("POST /api/reservations/1/checkout", "write"),
        ("GET /api/reservations/1", "page"),
        ("POST /accounts/log-in", "log-in"),
        ("GET /accounts/log-in", "page"),
        ("POST /api/auth/token", "log-in"),
        ("POST /admin/login/", "log-in"),
        ("POST /accounts/password/reset", "log-in"),
        ("POST /accounts/log-out", "write"),
        ("POST /accounts/erase", "write"),
        ("GET /accounts/erase", "page"),
        ("GET /", "page"),
        ("HEAD /api/events/a/sections", "read"),
        ("POST /nowhere", "write"),
        ("GET /static/css/fairgate.css", "page"),
        ("POST /static/css/fairgate.css", "write"),
        ("POST /api/webhooks/payments/sandbox", None),
        ("GET /api/webhooks/payments/sandbox", "page"),
        ("GET /healthz", None),
        ("HEAD /healthz", None),
        ("GET /favicon.ico", None),
        ("POST /healthz", "write"),
        ("GET /healthzX", "page"),
        ("GET /healthz/", "page"),
        ("GET /readyz", "page"),
        ("GET /metrics", "page"),
        ("GET /metricsX", "page"),
        ("GET /favicon.icon", "page"),
        ("GET /staticX", "page"),
        ("POST /api/webhooksX", "write"),
        ("GET /tickets/ABCD/ticket.pdf", "document"),
        ("GET /orders/0b7f/tickets.pdf", "document"),
        ("GET /accounts/data.json", "document"),
        ("GET /orders/0b7f/invoices/2026-1.pdf", "document"),
        ("GET /events/concert/report.pdf", "page"),
        ("GET /search", "search"),
        ("POST /api/search/recents", "search"),
        ("GET /api/search/recents", "page"),
        ("POST /searches/", "search"),
        ("GET /searches/", "page"),
        ("GET /api/search", "page"),
    ],
)
def test_the_kind_of_a_request(request_line: str, kind: str | None) -> None:
    assert kinds.kind_of(*request_line.split()) == kind


@pytest.fixture
def strict_site(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    rates = dict.fromkeys(rate_limits.KINDS, ((1.0, 2), (1.0, 1)))
    monkeypatch.setattr(rate_limits, "check_request", Limits(rates, time=Clock()).ask)
    client_address.forget_settings()
    yield
    client_address.forget_settings()


@pytest.mark.usefixtures("strict_site", "db")
def test_the_site_refuses_in_the_format_of_the_client(client: Client) -> None:
    address = {"REMOTE_ADDR": OFFICE}
    assert [client.get("/api/docs", **address).status_code for _ in range(3)] == [200, 200, 429]
    response = client.get("/api/docs", **address)
    assert response.json()["type"] == "rate-limited"
    assert response.headers["Content-Type"] == "application/problem+json"
    assert 1 <= int(response.headers["Retry-After"]) <= 32
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Request-Id"]
    page = client.get("/accounts/log-in", headers={"accept": "text/html"}, **address)
    assert page.status_code == 429
    assert b"You keep your place in line" in page.content
    assert page.headers["Retry-After"]
    file = client.get("/static/js/wait.js", **address)
    assert file.status_code == 200, "only missing files are limited"
    file.close()
    assert client.get("/static/js/missing.js", **address).status_code == 429


@pytest.mark.usefixtures("strict_site", "db")
def test_the_site_does_not_count_a_request_that_the_fast_path_has_counted(client: Client) -> None:
    forwarded = {client_address.FORWARDED_BY_HEADER: client_address.forward_token(), "X-Forwarded-For": OFFICE}
    assert [client.get("/api/docs", headers=forwarded).status_code for _ in range(5)] == [200] * 5
    forged = {client_address.FORWARDED_BY_HEADER: "0" * 48, "X-Forwarded-For": "198.51.100.77"}
    statuses = [client.get("/api/docs", headers=forged, REMOTE_ADDR=OFFICE).status_code for _ in range(3)]
    assert statuses == [200, 200, 429], "a forged mark is ignored, and so is its address"


@pytest.mark.parametrize("header", ["Bearer T", "bearer T", "Bearer  T ", "bEARER \tT", "T"])
def test_a_token_has_one_bucket_however_its_header_is_written(header: str) -> None:
    assert kinds.token_of(header, "sessionid=S") == "T"


def test_without_a_token_the_cookie_counts() -> None:
    assert kinds.token_of("", "a=b; sessionid=S; visitor=V") == "S"
    assert kinds.token_of("", "visitor=V") == "V"
    assert kinds.token_of("", "a=b") == ""
