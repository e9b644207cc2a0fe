"""Proof of work: only the solution of our own challenge, for the same purpose and visitor, in time, counts."""

import base64
import json
from typing import Any

import altcha
import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as some
from redis import Redis

from apps.kernel import clock, rate_limits, redis
from apps.kernel.http.problems import RateLimited
from apps.kernel.proof_of_work import challenges, delays, purposes
from apps.kernel.proof_of_work.arrivals import Arrivals, wide_network_of
from apps.kernel.proof_of_work.challenges import WorkRequired
from tests.support.own_redis import OwnRedis
from tests.support.queue.work import solve
from ticketing.settings_parts import proof_of_work as environment

BINDING = "join 7 visitor:ann"
ADDRESS, NEIGHBOR, OTHER = "203.0.113.9", "203.0.113.10", "198.51.100.1"


def unpack(proof: str) -> Any:
    return json.loads(base64.b64decode(proof))


def pack(document: Any) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


@pytest.fixture
def proof() -> str:
    return solve(challenges.create(BINDING, 4))


def test_the_solution_of_a_challenge_is_accepted(proof: str) -> None:
    solution = challenges.verify(proof, BINDING)
    assert solution is not None
    assert len(solution.id) == 16
    assert 0 <= solution.seconds < challenges.LIFETIME_SECONDS


def test_a_solution_is_bound_to_its_purpose_and_visitor(proof: str) -> None:
    assert challenges.verify(proof, "join 8 visitor:ann") is None
    assert challenges.verify(proof, "join 7 visitor:another") is None


def test_a_challenge_reveals_no_visitor_id() -> None:
    assert "visitor:ann" not in json.dumps(challenges.create(BINDING, 4))


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("parameters", "expiresAt", 2**40),
        ("parameters", "cost", 1),
        ("parameters", "keyPrefix", "00"),
        ("parameters", "keySignature", None),
        ("parameters", "data", {"for": challenges.digest_of("join 7 visitor:another"), "at": 1}),
        ("solution", "derivedKey", "00" * 32),
        ("solution", "derivedKey", None),
        ("challenge", "signature", "00" * 32),
        ("challenge", "signature", ""),
    ],
)
def test_a_changed_solution_is_refused(proof: str, part: str, name: str, value: Any) -> None:
    document = unpack(proof)
    target = {**document, "parameters": document["challenge"]["parameters"]}[part]
    target[name] = value
    assert challenges.verify(pack(document), BINDING) is None
    assert challenges.verify(pack(document), "join 7 visitor:another") is None


def test_another_encoding_of_a_solution_has_the_same_id(proof: str) -> None:
    """A client can write one solution in many ways. What is used once is the challenge."""
    again = base64.b64encode(json.dumps(unpack(proof), indent=1).encode()).decode() + "\n"
    assert again != proof
    assert challenges.verify(again, BINDING).id == challenges.verify(proof, BINDING).id  # type: ignore[union-attr]


def test_an_expired_solution_is_refused(proof: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock.process_seconds()
    monkeypatch.setattr("altcha.v2.time.time", lambda: now + challenges.LIFETIME_SECONDS + 2)
    assert challenges.verify(proof, BINDING) is None


def test_a_challenge_that_another_key_has_signed_is_refused() -> None:
    ours = challenges.create(BINDING, 4)["parameters"]
    forged = altcha.create_challenge(
        "SHA-256", 1, counter=1, expires_at=ours["expiresAt"], data=ours["data"], hmac_secret="x", hmac_key_secret="x"
    )
    assert challenges.verify(solve(forged.to_dict()), BINDING) is None


def test_a_challenge_of_an_earlier_version_has_no_points(monkeypatch: pytest.MonkeyPatch) -> None:
    create = altcha.create_challenge

    def create_earlier(*args: Any, data: dict[str, Any], **options: Any) -> Any:
        del data["points"]
        return create(*args, data=data, **options)

    monkeypatch.setattr(altcha, "create_challenge", create_earlier)
    assert challenges.verify(solve(challenges.create(BINDING, 4, 3)), BINDING).points == 0  # type: ignore[union-attr]


@given(some.text(max_size=300) | some.binary(max_size=300).map(lambda raw: base64.b64encode(raw).decode()))
def test_other_text_is_no_solution(text: str) -> None:
    assert challenges.verify(text, BINDING) is None


_JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=9),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)


_NAMES = some.sampled_from(["challenge", "solution", "parameters", "signature", "derivedKey", "expiresAt"])


@given(name=_NAMES, value=_JSON)
def test_odd_json_is_no_solution(name: str, value: Any) -> None:
    document: Any = unpack(solve(challenges.create(BINDING, 1)))
    document |= {name: value} if name in document else {}
    document["challenge"] = _put(document["challenge"], name, value)
    document["solution"] = _put(document["solution"], name, value)
    if isinstance(document["challenge"], dict):
        parameters = document["challenge"].get("parameters")
        document["challenge"]["parameters"] = _put(parameters, name, value)
    assert challenges.verify(pack(document), BINDING) is None


def _put(target: Any, name: str, value: Any) -> Any:
    return {**target, name: value} if isinstance(target, dict) else target


def test_a_long_solution_is_not_parsed(proof: str) -> None:
    assert challenges.verify(proof + "\n" * challenges.PAYLOAD_LENGTH_MAX, BINDING) is None


def test_each_point_doubles_the_work(settings: Any) -> None:
    settings.PROOF_OF_WORK_STEPS, settings.PROOF_OF_WORK_STEPS_MAX = 100, 1_000
    assert [challenges.steps_for(points) for points in (-1, 0, 1, 2, 9, 10_000)] == [50, 100, 200, 400, 1_000, 1_000]


def test_the_work_is_at_most_twice_the_average() -> None:
    counters = [unpack(solve(challenges.create(BINDING, 3)))["solution"]["counter"] for _ in range(40)]
    assert set(counters) <= set(range(1, 7))
    assert len(set(counters)) > 2


def test_challenges_and_solutions_are_counted(proof: str) -> None:
    def count(what: str) -> float:
        (family,) = challenges.METRICS[0].collect()
        return sum(each.value for each in family.samples if each.labels == {"purpose": "join", "what": what})

    before = [count(what) for what in ("created", "accepted", "refused")]
    challenges.create(BINDING, 1)
    challenges.verify(proof, BINDING)
    challenges.verify("", BINDING)
    assert [count(what) for what in ("created", "accepted", "refused")] == [each + 1 for each in before]


# --- arrivals ---------------------------------------------------------------------------------------------------------


def test_arrivals_are_counted_by_address_and_network(settings: Any) -> None:
    settings.PROOF_OF_WORK_ADDRESS, settings.PROOF_OF_WORK_NETWORK = (0.001, 10), (0.001, 40)
    arrivals = Arrivals("test")
    for _ in range(10):
        arrivals.count(ADDRESS, "concert")
    assert arrivals.usage(ADDRESS) == pytest.approx((1.0, 0.25), abs=0.01)
    assert arrivals.usage(NEIGHBOR) == pytest.approx((0.0, 0.25), abs=0.01)
    assert arrivals.usage(OTHER) == (0.0, 0.0)


def test_networks_are_24_and_48_bits_wide() -> None:
    networks = [wide_network_of(rate_limits.subject(each)) for each in (ADDRESS, NEIGHBOR, "203.0.114.9")]
    assert networks[0] == networks[1] != networks[2]
    addresses = ("2001:db8:1:2::3", "2001:db8:1:ffff::1", "2001:db8:2::1")
    first, second, third = (wide_network_of(rate_limits.subject(each)) for each in addresses)
    assert first == second != third


def test_exempt_and_unknown_addresses_are_not_counted() -> None:
    arrivals = Arrivals("test")
    for address in ("127.0.0.1", ""):
        for _ in range(500):
            arrivals.count(address, "concert")
        assert arrivals.usage(address) == (0.0, 0.0)


def test_pressure_is_a_rate_of_one_target(settings: Any) -> None:
    settings.PROOF_OF_WORK_PRESSURE = (0.001, 10)
    arrivals = Arrivals("test")
    for _ in range(5):
        arrivals.count(ADDRESS, "concert")
    assert not arrivals.is_under_pressure("concert")
    for _ in range(5):
        arrivals.count(OTHER, "concert")
    assert arrivals.is_under_pressure("concert")
    assert not arrivals.is_under_pressure("another")


def test_heavy_use_is_shared_through_redis_and_lost_without_it(redis_client: Redis, settings: Any) -> None:
    """Two processes: each has its own buckets under the same name."""
    settings.PROOF_OF_WORK_ADDRESS = (0.001, 100)
    mine = Arrivals("shared")
    for _ in range(100):
        mine.count(ADDRESS, "concert")
    rate_limits.limits._sharing.share()
    others = Arrivals("shared")
    for _ in range(10):
        others.count(ADDRESS, "concert")
    assert others.usage(ADDRESS).address == pytest.approx(0.1, abs=0.01)
    rate_limits.limits._sharing.share()
    assert others.usage(ADDRESS).address > 0.9
    redis_client.flushall()
    assert Arrivals("shared").usage(ADDRESS) == (0.0, 0.0), "the base difficulty applies"


# --- delays -----------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_delay_is_accepted_once_it_has_passed(settings: Any) -> None:
    settings.PROOF_OF_WORK_DELAY_SECONDS = 20
    waiting = delays.verify(delays.create(BINDING, ADDRESS), BINDING)
    assert waiting is not None
    assert 18 < waiting.seconds_left <= 20
    settings.PROOF_OF_WORK_DELAY_SECONDS = 0
    over = delays.verify(delays.create(BINDING, OTHER), BINDING)
    assert over is not None
    assert over.seconds_left == 0
    assert over.id != waiting.id


@pytest.mark.django_db
@pytest.mark.parametrize("token", ["", "x", "a.b.c", "\x00", "é" * 9, "x" * 5_000])
def test_other_text_is_no_delay(token: str) -> None:
    assert delays.verify(token, BINDING) is None


@pytest.mark.django_db
def test_a_delay_is_bound_to_its_purpose_and_visitor() -> None:
    assert delays.verify(delays.create(BINDING, ADDRESS), "join 7 visitor:another") is None


@pytest.mark.django_db
def test_delays_of_one_address_come_one_after_another() -> None:
    """Waiting costs a program nothing, so a thousand programs of one address must not all wait at the same time."""
    base = delays.verify(delays.create(BINDING, OTHER), BINDING)
    waits = [delays.verify(delays.create(f"{BINDING}{number}", ADDRESS), f"{BINDING}{number}") for number in range(10)]
    seconds = [each.seconds_left for each in waits if each is not None]
    assert base is not None
    assert seconds == sorted(seconds)
    assert seconds[-1] - base.seconds_left == pytest.approx(9 * delays.ADDRESS_SECONDS, abs=2)
    neighbor = delays.verify(delays.create(BINDING, NEIGHBOR), BINDING)
    assert neighbor is not None
    assert neighbor.seconds_left - base.seconds_left == pytest.approx(10 * delays.NETWORK_SECONDS, abs=2)


@pytest.mark.django_db
def test_delays_of_more_than_an_hour_are_refused() -> None:
    """Otherwise all further delays of an address would end at the same time, and a program could collect thousands."""
    for _ in range(delays._SECONDS_MAX // delays.ADDRESS_SECONDS):
        delays.create(BINDING, ADDRESS)
    with pytest.raises(RateLimited):
        delays.create(BINDING, ADDRESS)
    delays.create(BINDING, OTHER)


# --- purposes ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def log_in(settings: Any) -> purposes.Purpose:
    settings.PROOF_OF_WORK_LOG_IN, settings.PROOF_OF_WORK_STEPS = "on", 2
    return purposes.Purpose("log-in", "PROOF_OF_WORK_LOG_IN")


def test_a_call_with_work_passes_once(log_in: purposes.Purpose) -> None:
    with pytest.raises(WorkRequired) as refused:
        log_in.check(ADDRESS)
    proof = solve(refused.value.extra["challenge"])
    with pytest.raises(WorkRequired):
        log_in.check(OTHER, proof=proof)
    log_in.check(ADDRESS, proof=proof)
    with pytest.raises(WorkRequired):
        log_in.check(ADDRESS, proof=proof)


def test_without_redis_a_proof_still_passes(log_in: purposes.Purpose, own_redis: OwnRedis) -> None:
    proof = solve(log_in.create_challenge(ADDRESS))
    own_redis.kill()
    try:
        log_in.check(ADDRESS, proof=proof)
    finally:
        redis.forget_outage()


def test_no_work_is_required_while_it_is_off(settings: Any) -> None:
    settings.PROOF_OF_WORK_LOG_IN = "off"
    purpose = purposes.Purpose("log-in", "PROOF_OF_WORK_LOG_IN")
    for _ in range(500):
        purpose.check(ADDRESS)
    assert not purpose.is_required(ADDRESS)


def test_under_pressure_only_busy_addresses_need_work(settings: Any) -> None:
    settings.PROOF_OF_WORK_LOG_IN = "pressure"
    settings.PROOF_OF_WORK_ADDRESS, settings.PROOF_OF_WORK_PRESSURE = (0.001, 10), (1, 1_000)
    purpose = purposes.Purpose("log-in", "PROOF_OF_WORK_LOG_IN")
    for _ in range(5):
        purpose.check(ADDRESS)
    with pytest.raises(WorkRequired):
        purpose.check(ADDRESS)
    purpose.check(OTHER)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda name: environment._choice(name, ("off", "on")), "sometimes"),
        (lambda name: environment._whole(name, 2_000, least=1, most=10), "0"),
        (lambda name: environment._whole(name, 2_000, least=1, most=10), "many"),
        (lambda name: environment._bucket(name, "1:2"), "off"),
    ],
)
def test_a_wrong_setting_is_refused_at_start(read: Any, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROOF_OF_WORK_TEST", value)
    with pytest.raises(ImproperlyConfigured, match="PROOF_OF_WORK_TEST"):
        read("PROOF_OF_WORK_TEST")
