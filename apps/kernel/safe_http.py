"""The HTTP client for requests to other systems: bounded in time, size and processor, without redirects or proxies.

For a URL that a user chose, addresses of our own network are refused: the name is resolved once, every address is
checked, and the connection goes to one of those addresses, so a name that later resolves differently has no effect.
"""

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import httptools

URL_LENGTH_MAX = 500
LOOK_UP_SECONDS_MAX = 3.0
_look_ups = threading.BoundedSemaphore(64)
"""Of the names that a process resolves at once. Those of slow name servers go on after their deadline."""
HEAD_BYTES_MAX = 32_768
"""Of a response: its status line and headers, with those of interim responses. Parsers written in Python are no choice:
http.client takes 14 s for a head of 250 KB with nested parts, h11 two seconds for one header of 32,000 blanks, and no
deadline ends that."""
_FRAMING_SHARE = 8
"""Bytes received for each byte of the body that is wanted: chunks of one byte take six."""
_RECEIVED_AT_ONCE = 16_384
_TLS_BYTES_MAX = 262_144
"""Of a connection, beyond the data: certificates, session tickets, headers of records."""
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:!aNULL:!SHA1"
"""Of TLS 1.2. With DHE the receiver chooses the modulus, and a large one takes a second of processor time."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""The public range of IPv6. Other addresses are local, or embed IPv4 addresses for translators."""
_RESERVED_NETWORKS = [ipaddress.ip_network(one) for one in ("3fff::/20", "192.0.0.0/24", "192.88.99.0/24")]
"""Documentation, protocol assignments and relays, which Python 3.11 considers public."""
_Result = TypeVar("_Result")
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

    `seconds_max` bounds the whole call, however slowly the server sends; name resolution may take at most
    LOOK_UP_SECONDS_MAX of it.
    """
    parts = check_url(url, allowed)
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    default_port = 443 if is_tls else 80
    port = parts.port or default_port
    deadline = time.monotonic() + seconds_max
    addresses = _look_up(host, port, allowed, min(seconds_max, LOOK_UP_SECONDS_MAX))
    named = f"[{host}]" if ":" in host else host
    sent = {
        "Host": named if port == default_port else f"{named}:{port}",
        "Accept-Encoding": "identity",
        "Connection": "close",
        "Content-Length": str(len(body or b"")),
        **headers,
    }
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        with _connect(port, addresses, deadline) as connected:
            plain = _Plain(connected, deadline)
            connection = _Tls(plain, host) if is_tls else plain
            connection.send(_head(f"{method} {target} HTTP/1.1", sent) + (body or b""))
            return _Response(connection).receive(answer_bytes_max)
    except (OSError, ValueError) as error:
        raise RequestFailed(f"{type(error).__name__}: {error}"[:300]) from error


def _look_up(host: str, port: int, allowed: AddressPolicy, seconds_max: float) -> list[str]:
    """Return the host's addresses, all of which are allowed. The system's resolver waits for slow name servers for tens
    of seconds and cannot be interrupted, so it runs in a thread of its own, which is left behind at the deadline."""
    found: SimpleQueue[Any] = SimpleQueue()

    def resolve() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            found.put(error)
        finally:
            _look_ups.release()

    if not _look_ups.acquire(blocking=False):
        raise RequestFailed("the name is not known: too many slow names are being resolved")
    threading.Thread(target=resolve, name="name resolution", daemon=True).start()
    try:
        answer = found.get(timeout=seconds_max)
    except Empty:
        raise RequestFailed(f"the name is not known after {seconds_max:g} s") from None
    if isinstance(answer, Exception):
        raise RequestFailed(f"the name is not known: {answer}") from answer
    addresses = [str(sockaddr[0]) for _, _, _, _, sockaddr in answer]
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


def _connect(port: int, addresses: Sequence[str], deadline: float) -> socket.socket:
    """Connect to the first reachable one of the checked addresses."""
    for address in addresses[:-1]:
        try:
            return socket.create_connection((address, port), _seconds_left(deadline))
        except OSError:
            continue
    return socket.create_connection((addresses[-1], port), _seconds_left(deadline))


def _head(first_line: str, headers: Mapping[str, str]) -> bytes:
    lines = [first_line, *(f"{name}: {value}" for name, value in headers.items())]
    if any(not line.isprintable() for line in lines):
        raise ValueError("a header of the request is not printable")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


class _Plain:
    """A connection whose every wait ends at the deadline."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._socket, self._deadline = connected, deadline

    def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self._socket.settimeout(_seconds_left(self._deadline))
            left = left[self._socket.send(left) :]

    def receive(self) -> bytes:
        """Return the next bytes; none at the end of the connection."""
        self._socket.settimeout(_seconds_left(self._deadline))
        return self._socket.recv(_RECEIVED_AT_ONCE)


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_ciphers(_CIPHERS)
    return context


class _Tls:
    """TLS over such a connection; it verifies the host's name.

    OpenSSL reads records without data, as of session tickets, in one call for as long as they arrive. So it gets what
    was received piece by piece, and the deadline and the limit are checked between them.
    """

    def __init__(self, plain: _Plain, host: str) -> None:
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _tls_context().wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._bytes_left = _TLS_BYTES_MAX
        self._run(self._tls.do_handshake)

    def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._run(partial(self._tls.write, left)) :]

    def receive(self) -> bytes:
        """Return the next bytes; none at the end of the connection."""
        try:
            data = self._run(lambda: self._tls.read(_RECEIVED_AT_ONCE))
        except ssl.SSLEOFError:
            return b""
        self._bytes_left += len(data)
        return data

    def _run(self, act: Callable[[], _Result]) -> _Result:
        while True:
            try:
                result = act()
            except ssl.SSLWantReadError:
                self._plain.send(self._outgoing.read())
            else:
                self._plain.send(self._outgoing.read())
                return result
            received = self._plain.receive()
            self._bytes_left -= len(received)
            if self._bytes_left < 0:
                raise ValueError("too much of the connection is no data")
            if received:
                self._incoming.write(received)
            else:
                self._incoming.write_eof()


class _Response:
    """The response on a connection to which the request was sent."""

    def __init__(self, connection: _Plain | _Tls) -> None:
        self._connection = connection
        self._parser = httptools.HttpResponseParser(self)
        self._status: int | None = None
        """Of the final response, once its head is complete."""
        self._body = bytearray()
        self._is_complete = False

    def receive(self, body_bytes_max: int) -> Answer:
        """Return the final response. A body that ends early, or at the deadline, is returned as far as it was read."""
        is_late = False
        left = HEAD_BYTES_MAX
        while self._status is None:
            if not (received := self._connection.receive()):
                raise ValueError("the connection ended before the response")
            self._parse(received)
            left -= len(received)
            if left < 0 and self._status is None:
                raise ValueError("the head of the response is too long")
        status, left = self._status, _FRAMING_SHARE * body_bytes_max
        try:
            while not self._is_complete and len(self._body) < body_bytes_max and left > 0:
                received = self._connection.receive()
                left -= len(received)
                if not received or not self._parse(received):
                    break
        except TimeoutError:
            is_late = True
        return Answer(status, bytes(self._body[:body_bytes_max]), is_late)

    def _parse(self, received: bytes) -> bool:
        """Parse these bytes; return whether they are well-formed. After the head, which has the status, it matters
        little: a malformed body counts as far as it was read."""
        try:
            self._parser.feed_data(received)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._status is None:
                raise ValueError(f"the response is not HTTP: {error}") from error
            return False
        return True

    def on_headers_complete(self) -> None:
        """Called by the parser, as are the next two. Responses below 200 are interim."""
        status = self._parser.get_status_code()
        if status >= 200 and self._status is None:
            self._status = status

    def on_body(self, received: bytes) -> None:
        self._body += received

    def on_message_complete(self) -> None:
        self._is_complete = self._status is not None


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
