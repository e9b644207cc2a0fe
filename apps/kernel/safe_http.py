"""The HTTP client for requests to other systems: bounded in time and size, without redirects or proxies.

For a URL that a user chose, addresses of our own network are refused: the name is resolved once, every address is
checked, and the connection goes to one of those addresses, so a name that later resolves differently has no effect.
"""

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

URL_LENGTH_MAX = 500
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""The public range of IPv6. Other addresses are local, or embed IPv4 addresses for translators."""
_RESERVED_NETWORKS = [ipaddress.ip_network(one) for one in ("3fff::/20", "192.0.0.0/24", "192.88.99.0/24")]
"""Documentation, protocol assignments and relays, which Python 3.11 considers public."""
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(ValueError):
    """Requests to this URL are not allowed; the message says why."""


class RequestFailed(Exception):
    """No server was reached, or its response was late or not HTTP."""


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Exceptions to the rule "https to public addresses only"."""

    plain_http: bool = False
    private_addresses: bool = False


OPERATOR_URL = AddressPolicy(plain_http=True, private_addresses=True)
"""For a URL from the settings."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    """The first bytes of the body, up to the limit."""
    is_late: bool = False
    """The deadline passed before the body was read, so it may be incomplete."""


def check_url(url: str, allowed: AddressPolicy) -> SplitResult:
    """Return the parts of a URL that passes every check but name resolution. Raises AddressRefused."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressRefused("its host or port cannot be read") from error
    if len(url) > URL_LENGTH_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise AddressRefused(f"at most {URL_LENGTH_MAX} printable ASCII characters without blanks")
    if parts.scheme != "https" and not (allowed.plain_http and parts.scheme == "http"):
        raise AddressRefused(f"it must begin with {'http:// or ' if allowed.plain_http else ''}https://")
    if not parts.hostname or port == 0:
        raise AddressRefused("it has no host")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused("it must not contain a user name or password")
    try:
        address = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return parts  # A name, which is resolved for each request.
    _require_public(address, allowed)
    return parts


def request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    *,
    seconds_max: float,
    answer_bytes_max: int,
    allowed: AddressPolicy,
) -> Answer:
    """Return the response, whatever its status, with at most `answer_bytes_max` of its body. Raises AddressRefused and
    RequestFailed.

    `seconds_max` bounds the whole call, however slowly the server sends; only the system's name resolution has its own
    limit.
    """
    parts = check_url(url, allowed)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    addresses = _look_up(host, port, allowed)
    deadline = time.monotonic() + seconds_max
    connection = _PinnedConnection(host, port, addresses, deadline, is_tls)
    # A socket's timeout restarts with each byte, so a server that sends slowly would never reach it.
    timer = threading.Timer(seconds_max, _abort, [connection])
    timer.daemon = True
    timer.start()
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body, dict(headers))
        response = connection.getresponse()
        content = response.read(answer_bytes_max)
    except (OSError, ValueError, http.client.HTTPException, AttributeError) as error:
        # http.client raises AttributeError if the connection is aborted between two of its steps.
        raise RequestFailed(f"{type(error).__name__}: {error}"[:300]) from error
    finally:
        timer.cancel()
        connection.close()
    return Answer(response.status, content, time.monotonic() >= deadline)


def _look_up(host: str, port: int, allowed: AddressPolicy) -> list[str]:
    """Return the host's addresses, all of which are allowed."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise RequestFailed(f"the name is not known: {error}") from error
    addresses = [str(sockaddr[0]) for _, _, _, _, sockaddr in found]
    for address in addresses:
        _require_public(ipaddress.ip_address(address.partition("%")[0]), allowed)
    return addresses


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
    """Return the IPv4 addresses embedded in an IPv6 address for translators."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    carried: list[_Address] = [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
    carried += address.teredo or ()
    if address in _NAT64:
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return carried


class _PinnedConnection(http.client.HTTPConnection):
    """A connection to the first reachable one of the checked addresses; TLS and the Host header use the host's name."""

    def __init__(self, host: str, port: int, addresses: Sequence[str], deadline: float, is_tls: bool) -> None:
        super().__init__(host, port)
        self._addresses, self._deadline = addresses, deadline
        self._context = ssl.create_default_context() if is_tls else None
        self.default_port = 443 if is_tls else 80  # The Host header omits this port.

    def connect(self) -> None:
        for number, address in enumerate(self._addresses, start=1):
            try:
                sock = socket.create_connection((address, self.port), self._seconds_left())
                break
            except OSError:
                if number == len(self._addresses):
                    raise
        self.sock = sock
        sock.settimeout(self._seconds_left())
        if self._context is not None:
            self.sock = self._context.wrap_socket(sock, server_hostname=self.host)

    def _seconds_left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


def _abort(connection: http.client.HTTPConnection) -> None:
    if (sock := connection.sock) is not None:
        with suppress(OSError):  # The connection may have ended already.
            # Closing alone would leave another thread's read blocked.
            sock.shutdown(socket.SHUT_RDWR)
