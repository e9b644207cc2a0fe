"""Caps on what one address has at once: a /64 is one client, a /48 has eight times as much, offices have more, and a
released place is free again."""

import ipaddress
from collections.abc import Iterator
from typing import Any

import pytest

from apps.kernel.rate_limits import address_caps
from apps.kernel.rate_limits.address_caps import AddressCap, share_of_process
from ticketing.settings_parser import InvalidSetting, parse_count, parse_factors


@pytest.fixture(autouse=True)
def _raised(settings: Any) -> Iterator[None]:
    settings.ADDRESS_CAPS_RAISED = [
        (ipaddress.ip_network("203.0.113.0/24"), 2),
        (ipaddress.ip_network("203.0.113.7"), 3),
        (ipaddress.ip_network("2001:db8:f::/48"), 2),
    ]
    address_caps.forget_settings()
    yield
    address_caps.forget_settings()


def entered(cap: AddressCap, *addresses: str) -> int:
    """Return how many of a hundred attempts from these addresses in turn succeed."""
    return sum(cap.enter(addresses[number % len(addresses)]) for number in range(100))


@pytest.mark.parametrize(
    ("addresses", "count"),
    [
        (["198.51.100.1"], 4),
        (["198.51.100.1", "198.51.100.2"], 8),
        (["198.51.100.1", "::ffff:198.51.100.1"], 4),
        (["2001:db8::1", "2001:db8:0:0:ffff::2", "2001:DB8::3%eth0"], 4),
        (["2001:db8::1", "2001:db8:0:1::1"], 8),
        (["203.0.113.1"], 8),
        (["203.0.113.7"], 12),
        (["::ffff:203.0.113.7"], 12),
        (["2001:db8:f::1", "2001:db8:f::2"], 8),
        ([f"2001:db8:1:{number:x}::1" for number in range(20)], 32),
        ([f"2001:db8:f:{number:x}::1" for number in range(20)], 64),
        ([f"2001:db8:{number:x}::1" for number in range(12)], 48),
        (["127.0.0.1"], 100),
        (["::1"], 100),
        ([""], 100),
    ],
)
def test_each_address_has_its_cap(addresses: list[str], count: int) -> None:
    assert entered(AddressCap("tests", 4), *addresses) == count


def test_a_released_place_is_free_again_and_no_address_is_kept() -> None:
    cap = AddressCap("tests", 2)
    addresses = ["198.51.100.1", "2001:db8::1", "127.0.0.1"]
    for _ in range(3):
        for address in addresses:
            assert [cap.enter(address) for _ in range(2)] == [True, True]
        assert not cap.enter(addresses[0])
        assert cap.total == 6
        for address in addresses * 2:
            cap.leave(address)
    assert cap.total == 0
    assert cap._counts == {}


@pytest.mark.parametrize(
    ("cap", "processes", "share"),
    [(500, 1, 500), (500, 2, 500), (500, 4, 250), (500, 16, 64), (1, 64, 1), (3, 64, 2), (100, 3, 68)],
)
def test_a_process_allows_twice_its_even_share(cap: int, processes: int, share: int) -> None:
    assert share_of_process(cap, processes) == share


def test_an_invalid_setting_is_reported_in_one_sentence() -> None:
    assert parse_factors("ADDRESS_CAPS_RAISED", ["203.0.113.7=10", " 2001:db8::/32=2"]) == [
        (ipaddress.ip_network("203.0.113.7"), 10),
        (ipaddress.ip_network("2001:db8::/32"), 2),
    ]
    for wrong in ("203.0.113.7", "=10", "203.0.113.7=", "203.0.113.7=0", "203.0.113.7=1001", "203.0.113.7=off", "x=1"):
        with pytest.raises(InvalidSetting, match=r"^ADDRESS_CAPS_RAISED must (look like|name networks)"):
            parse_factors("ADDRESS_CAPS_RAISED", [wrong])
    assert parse_count("ADDRESS_STREAMS_MAX", "500") == 500
    for wrong in ("0", "-1", "x", "1000001", "²"):
        with pytest.raises(InvalidSetting, match=r"^ADDRESS_STREAMS_MAX must be a number"):
            parse_count("ADDRESS_STREAMS_MAX", wrong)
