"""One POST to an address that somebody else chose: bounded in time and size, and kept out of our own network.

The name is looked up once, every address it has is judged, and the connection goes to one of those very addresses: a
name that points elsewhere a moment later gains nothing. Redirects are not followed, the environment's proxies not used.
"""

import http.client
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

logger = logging.getLogger(__name__)

URL_LENGTH_MAX = 500
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is anybody's in the Internet; the rest is local, or carries IPv4 to whoever translates."""
_RESERVED_NETWORKS = [ipaddress.ip_network(one) for one in ("3fff::/20", "192.0.0.0/24", "192.88.99.0/24")]
"""Documentation, protocol assignments and relays, which Python 3.11 takes for public."""
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(ValueError):
    """We do not send there. Says why."""


class RequestFailed(Exception):
    """Nobody answered there, or not in time, or not in HTTP."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """What an operator allows beyond https to public addresses."""

    plain_http: bool = False
    private_addresses: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str
    """Its beginning."""


def check_url(url: str, allowed: AddressPolicy) -> SplitResult:
    """The parts of an address that could be sent to, as far as can be told without looking its name up. Raises
    AddressRefused."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressRefused("its host or port cannot be read") from error
    if len(url) > URL_LENGTH_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise AddressRefused(f"at most {URL_LENGTH_MAX} printable ASCII characters without blanks")
    if parts.scheme != "https" and not (allowed.plain_http and parts.scheme == "http"):
        raise AddressRefused("it must begin with https://")
    if not parts.hostname or port == 0:
        raise AddressRefused("it names no host")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("a user name or password does not belong into it")
    try:
        _require_public(ipaddress.ip_address(parts.hostname), allowed)
    except AddressRefused:
        raise
    except ValueError:
        pass  # A name, which is looked up when something is sent.
    return parts


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds_max: float,
    answer_bytes_max: int,
    allowed: AddressPolicy,
) -> Answer:
    """What was answered; any status is an answer. Raises AddressRefused and RequestFailed.

    `seconds_max` is for the whole of it, however slowly the other side speaks; only the system's look-up of the name
    has its own limit.
    """
    parts = check_url(url, allowed)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    address = _look_up(host, port, allowed)
    wire = _PinnedConnection(host, port, address, seconds_max, is_tls)
    # A time-out counts from one byte to the next: who drips would keep us. This ends all of it.
    watch = threading.Timer(seconds_max, _cut, [wire])
    watch.daemon = True
    watch.start()
    try:
        wire.request("POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, dict(headers))
        answer = wire.getresponse()
        return Answer(answer.status, answer.read(answer_bytes_max).decode("utf-8", "replace"))
    except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
        # AttributeError: http.client, when it is cut off between two steps of its own.
        raise RequestFailed(f"{type(error).__name__}: {error}"[:300]) from error
    finally:
        watch.cancel()
        wire.close()


def _look_up(host: str, port: int, allowed: AddressPolicy) -> str:
    """One of the host's addresses, all of which we may send to."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RequestFailed(f"the name is not known: {error}") from error
    addresses = [str(sockaddr[0]) for _, _, _, _, sockaddr in found]
    for address in addresses:
        _require_public(ipaddress.ip_address(address.partition("%")[0]), allowed)
    return addresses[0]


def _require_public(address: _Address, allowed: AddressPolicy) -> None:
    if allowed.private_addresses:
        return
    for one in (address, *_embedded_ipv4(address)):
        is_public = one.is_global and not one.is_multicast and not any(one in network for network in _RESERVED_NETWORKS)
        if isinstance(one, ipaddress.IPv6Address):
            is_public &= one in _GLOBAL_UNICAST or one in _NAT64 or one.ipv4_mapped is not None
        if not is_public:
            raise AddressRefused("it is not a public address")


def _embedded_ipv4(address: _Address) -> list[_Address]:
    """The IPv4 addresses that an IPv6 one carries to whoever translates."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    carried: list[_Address] = [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
    carried += address.teredo or ()
    if address in _NAT64:
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return carried


class _PinnedConnection(http.client.HTTPConnection):
    """A connection to the judged address, which speaks to the host by its name."""

    def __init__(self, host: str, port: int, address: str, seconds_max: float, is_tls: bool) -> None:
        super().__init__(host, port, timeout=seconds_max)
        self._address = address
        self._context = ssl.create_default_context() if is_tls else None
        self.default_port = 443 if is_tls else 80  # Of the Host header.

    def connect(self) -> None:
        sock = socket.create_connection((self._address, self.port), self.timeout)
        self.sock = sock
        if self._context is not None:
            self.sock = self._context.wrap_socket(sock, server_hostname=self.host)


def _cut(wire: http.client.HTTPConnection) -> None:
    sock = wire.sock
    if sock is not None:
        try:
            # Closing alone would leave a read of another thread where it is.
            sock.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            logger.debug("the connection had ended: %s", error)
