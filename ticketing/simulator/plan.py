"""What a run is to be: who comes, when, and against which limits it is held."""

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

VISITORS_MAX = 200_000
CONNECTIONS_MAX = 1_000
SECONDS_MAX = 86_400
POLL = "poll"
LISTEN_BY = ("sse", "websocket", POLL)
STREAMS_MAX = 25_000
OTHER_FILES = 50


class PlanRefused(ValueError):
    """The run cannot be as asked for; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class Plan:
    event: str
    base: str
    """Scheme, host and port; every path of the contract follows it."""
    visitors: int
    over_seconds: float
    """They come spread at random over so long."""
    buyers: int = 0
    """So many of the visitors buy; the others look round and leave."""
    listeners: int = 0
    """Beside the visitors: they only follow what is free,"""
    listen_by: str = "sse"
    """over a stream that they open again when it ends, or by asking for the sections."""
    least_seconds: float = 0.0
    """The listeners stay for so long at least, whatever becomes of the others."""
    twice: float = 0.05
    """The share that joins from two tabs at the same moment."""
    leavers: float = 0.05
    """The share that loses patience while waiting."""
    walk_away: float = 0.0
    """The shares of the buyers who hold something and go without a word,"""
    double: float = 0.0
    """who click twice on everything and try a second tab,"""
    change: float = 0.0
    """who choose others once they hold something,"""
    back: float = 0.0
    """and who come back once if they have bought nothing."""
    stay_seconds: float = 5.0
    """How long somebody who is let in takes, on average, for each thing they do."""
    seconds_max: float = 900.0
    connections: int = 64
    seed: int = 0
    rate_max: float | None = None
    """Admissions a second that must not be exceeded; None: not held against it."""
    active_max: int | None = None
    anywhere: bool = False

    def __post_init__(self) -> None:
        self._within("visitors", self.visitors, 1, VISITORS_MAX)
        self._within("listeners", self.listeners, 0, VISITORS_MAX)
        if self.listen_by not in LISTEN_BY:
            raise PlanRefused(f"listen by {' or '.join(LISTEN_BY)}, not {self.listen_by!r}")
        if self.streams > STREAMS_MAX:
            raise PlanRefused(f"one address has ports for {STREAMS_MAX:,} streams, not for {self.streams:,}")
        self._within("buyers", self.buyers, 0, self.visitors)
        self._within("connections", self.connections, 1, CONNECTIONS_MAX)
        for name in ("over", "stay"):
            self._within(name, getattr(self, f"{name}_seconds"), 0, SECONDS_MAX)
        self._within("at most", self.seconds_max, 1, SECONDS_MAX)
        self._within("for", self.least_seconds, 0, self.seconds_max)
        for name in ("twice", "leavers", "walk_away", "double", "change", "back"):
            self._within(name, getattr(self, name), 0, 1)

    @property
    def streams(self) -> int:
        return self.listeners if self.listen_by != POLL else 0

    @property
    def files(self) -> int:
        """So many the crowd opens at the same time."""
        return self.streams + self.connections + OTHER_FILES

    def _within(self, name: str, value: float, least: float, most: float) -> None:
        if not least <= value <= most:
            raise PlanRefused(f"{name} must be between {least:,} and {most:,}, not {value:,}")


def check_base(text: str, *, anywhere: bool) -> str:
    """The address without a path. Raises PlanRefused unless it is one, and is this machine's own or `anywhere`."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise PlanRefused(f"{text!r} is not an address such as http://127.0.0.1:8000") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise PlanRefused(f"{text!r} is not an address such as http://127.0.0.1:8000")
    if not anywhere:
        for address in addresses_of(parts.hostname, port or (443 if parts.scheme == "https" else 80)):
            if not is_loopback(address):
                raise PlanRefused(
                    f"{parts.hostname} is {address}, another machine's: a crowd is let loose on it with --anywhere only"
                )
    return f"{parts.scheme}://{parts.netloc}"


def addresses_of(host: str, port: int) -> list[str]:
    """Every address the name stands for. Raises PlanRefused where there is none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise PlanRefused(f"there is no host {host!r}") from error
    return sorted({str(entry[4][0]) for entry in found})


def is_loopback(address: str) -> bool:
    """Whether this address is the machine itself, also in its IPv6 disguise."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback
