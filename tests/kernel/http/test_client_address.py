"""The client's address: only trusted proxies are believed, and only about the peers that they can know."""

import ipaddress
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from apps.kernel.http import client_address
from ticketing.settings_parser import InvalidSetting, parse_networks, parse_rate

PROXY = "10.0.0.1"


@pytest.fixture(autouse=True)
def _caches_cleared() -> Iterator[None]:
    client_address.forget_settings()
    yield
    client_address.forget_settings()


@pytest.fixture
def proxies(settings: Any) -> None:
    settings.TRUSTED_PROXIES = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("2001:db8:ff::/48")]


def both(peer: str, forwarded: str | None) -> str:
    """Return the fast path's address. A site that gets the same request directly ignores the header."""
    scope = {
        "client": (peer, 1234) if peer else None,
        "headers": [(b"accept", b"*/*"), (b"x_forwarded_for", b"6.6.6.6")],
    }
    environ = {"REMOTE_ADDR": peer}
    if forwarded is not None:
        scope["headers"] += [(b"x-forwarded-for", part.encode("latin-1")) for part in forwarded.split("|")]
        environ["HTTP_X_FORWARDED_FOR"] = forwarded.replace("|", ",")
    assert client_address.address_from_environ(environ) == peer
    return client_address.address_from_scope(scope)


def test_without_a_trusted_proxy_the_address_is_the_peers() -> None:
    assert both("203.0.113.1", None) == "203.0.113.1"
    assert both("203.0.113.1", "198.51.100.1") == "203.0.113.1"
    assert both("127.0.0.1", "198.51.100.1") == "127.0.0.1", "our own machine is no proxy by itself"
    assert both("", "198.51.100.1") == ""


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        ("203.0.113.1", "203.0.113.1"),
        ("1.1.1.1, 203.0.113.1", "203.0.113.1"),
        ("1.1.1.1, 203.0.113.1, 10.9.9.9", "203.0.113.1"),
        ("1.1.1.1|203.0.113.1|10.9.9.9, 10.1.1.1", "203.0.113.1"),
        ("garbage, 203.0.113.1", "203.0.113.1"),
        ("10.3.3.3, 10.2.2.2", "10.3.3.3"),
        ("203.0.113.1:4711", "203.0.113.1"),
        ("[2001:db8::5]:4711", "2001:db8::5"),
        ("2001:DB8:0::5", "2001:db8::5"),
        ("2001:db8:1::5, 2001:db8:ff::1", "2001:db8:1::5"),
        ("::ffff:203.0.113.1", "203.0.113.1"),
        ("203.0.113.1, ::ffff:10.1.1.1", "203.0.113.1"),
        ("garbage", PROXY),
        ("203.0.113.1, unknown", PROXY),
        ("203.0.113.1,", PROXY),
        ("", PROXY),
        (None, PROXY),
        ("203.0.113.256", PROXY),
        ("203.0.113.1, " * 40 + "10.1.1.1", "203.0.113.1"),
        (", ".join(["10.1.1.1"] * 5_000), "10.1.1.1"),
    ],
)
@pytest.mark.usefixtures("proxies")
def test_a_trusted_proxys_header_is_read_from_its_end(forwarded: str | None, expected: str) -> None:
    assert both(PROXY, forwarded) == expected
    assert both("203.0.113.200", forwarded) == "203.0.113.200", "the header of any other peer is ignored"


@pytest.mark.usefixtures("proxies")
def test_a_truncated_entry_is_ignored() -> None:
    left = "203.0.113.1" + "0" * client_address.FORWARDED_LENGTH_MAX
    assert both(PROXY, left) == PROXY


@given(peer=some.sampled_from([PROXY, "203.0.113.1", "unix:", ""]), forwarded=some.binary(max_size=200))
def test_every_header_yields_an_address(peer: str, forwarded: bytes) -> None:
    both(peer, forwarded.decode("latin-1").replace("|", ""))


@pytest.mark.usefixtures("proxies")
def test_a_trusted_proxy_decides_the_scheme() -> None:
    def scheme(peer: str, header: bytes) -> str:
        scope = {"client": (peer, 1), "scheme": "http", "headers": [(b"x-forwarded-proto", header)]}
        return client_address.scheme_from_scope(scope)

    assert [scheme(PROXY, header) for header in (b"https", b"http, HTTPS", b"gopher", b"")] == ["https"] * 2 + [
        "http"
    ] * 2
    assert scheme("203.0.113.1", b"https") == "http"
    for peer in ("203.0.113.1", PROXY):
        environ = {"REMOTE_ADDR": peer, "HTTP_X_FORWARDED_PROTO": "https"}
        client_address.strip_untrusted_headers(environ)
        assert "HTTP_X_FORWARDED_PROTO" not in environ
    environ |= {"HTTP_X_FAIRGATE_LANE": client_address.forward_token(), "HTTP_X_FORWARDED_PROTO": "https"}
    client_address.strip_untrusted_headers(environ)
    assert environ["HTTP_X_FORWARDED_PROTO"] == "https"


def test_the_site_accepts_the_address_only_with_the_fast_paths_token() -> None:
    forwarded = {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FORWARDED_FOR": "203.0.113.1"}
    assert (
        client_address.address_from_environ({**forwarded, "HTTP_X_FAIRGATE_LANE": client_address.forward_token()})
        == "203.0.113.1"
    )
    for token in ("", "0" * 48, client_address.forward_token()[:-1], "ä\x80"):
        forged = {**forwarded, "HTTP_X_FAIRGATE_LANE": token}
        assert not client_address.is_forwarded_by_fastpath(forged)
        assert client_address.address_from_environ(forged) == "127.0.0.1"
    unknown = {"REMOTE_ADDR": "127.0.0.1", "HTTP_X_FAIRGATE_LANE": client_address.forward_token()}
    assert client_address.address_from_environ(unknown) == "", "the fast path does not know it either: a Unix socket"


def test_an_invalid_setting_is_reported_in_one_sentence() -> None:
    assert parse_networks("TRUSTED_PROXIES", ["10.0.0.0/8", " ::1", ""]) == [
        ipaddress.ip_network("10.0.0.0/8"),
        ipaddress.ip_network("::1"),
    ]
    assert parse_rate("RATE_LIMIT_JOIN_ADDRESS", "0.5:10") == (0.5, 10)
    assert parse_rate("RATE_LIMIT_JOIN_ADDRESS", "off") is None
    with pytest.raises(InvalidSetting, match=r"^TRUSTED_PROXIES must name networks"):
        parse_networks("TRUSTED_PROXIES", ["10.0.0.1/8"])
    for wrong in ("", "10", "10:", "ten:5", "10:0", "0:5", "-1:5", "nan:5", "inf:5", "10:5:5", "10:1.5"):
        with pytest.raises(InvalidSetting, match=r"^RATE_LIMIT_JOIN_ADDRESS must look like RATE:BURST"):
            parse_rate("RATE_LIMIT_JOIN_ADDRESS", wrong)
