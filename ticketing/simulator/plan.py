"""The plan of a run: its visitors, when they arrive, what they do, and which limits are checked."""

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
ADDRESSES_MAX = 15_000


class PlanRefused(ValueError):
    """The plan is invalid; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Plan:
    event: str
    base: str
    """Scheme, host and port, without a path."""
    visitors: int
    over_seconds: float
    """Visitors arrive at random times within this time."""
    buyers: int = 0
    """The number of visitors who buy; the others browse and leave."""
    listeners: int = 0
    """Additional clients that only follow availability."""
    listen_by: str = "sse"
    """A stream that is reopened when it ends (sse, websocket), or polling of the sections."""
    least_seconds: float = 0.0
    """Listeners stay at least this long, even if all visitors are done."""
    twice: float = 0.05
    """The share of visitors who join from two tabs at the same time."""
    leavers: float = 0.05
    """The share of visitors who lose patience in line."""
    walk_away: float = 0.0
    """The share of buyers who hold and then disappear."""
    double: float = 0.0
    """The share of buyers who send every request twice and try to hold from a second tab."""
    change: float = 0.0
    """The share of buyers who replace their hold."""
    back: float = 0.0
    """The share of buyers who return once if they bought nothing."""
    stay_seconds: float = 5.0
    """Mean time for each step of an admitted visitor."""
    seconds_max: float = 900.0
    connections: int = 64
    seed: int = 0
    rate_max: float | None = None
    """Admissions per second that must not be exceeded; None: not checked."""
    active_max: int | None = None
    anywhere: bool = False
    addresses: int = 0
    """Loopback addresses from which the visitors come; 0: all from the usual one."""
    bots: int = 0
    """Programs beside the visitors; see bots.py."""
    bot_kinds: tuple[str, ...] = ("naive", "patient", "distributed")
    bot_addresses: int = 1
    """Addresses that the distributed bots share."""
    bot_cores: int = 8
    """Cores that all bots share for proof of work; each visitor has one core."""
    step_seconds: float = 0.0003
    """The time that counts for one derivation of a visitor's browser."""
    bot_step_seconds: float = 0.0001
    """The same for a bot, which is a program and so about three times as fast."""
    account_tokens: tuple[str, ...] = ()
    """Access tokens of the accounts with which visitors join, each its own; empty: as guests."""
    bot_account_tokens: tuple[str, ...] = ()
    """Access tokens of the accounts that the bots share; empty: as guests."""

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
        self._within("bots", self.bots, 0, VISITORS_MAX)
        self._within("addresses", self.addresses, 0, ADDRESSES_MAX)
        self._within("bot addresses", self.bot_addresses, 1, ADDRESSES_MAX)
        self._within("bot cores", self.bot_cores, 1, 100_000)
        self._within("step seconds", self.step_seconds, 0, 60)
        self._within("bot step seconds", self.bot_step_seconds, 0, 60)
        if self.anywhere and (self.addresses or self.bots):
            raise PlanRefused("bots and several addresses are for a site on this machine")
        for name in ("twice", "leavers", "walk_away", "double", "change", "back"):
            self._within(name, getattr(self, name), 0, 1)

    @property
    def streams(self) -> int:
        return self.listeners if self.listen_by != POLL else 0

    @property
    def files(self) -> int:
        """The number of files open at the same time."""
        several = 2 * (self.addresses + self.bot_addresses) if self.bots or self.addresses else 0
        return self.streams + self.connections + several + OTHER_FILES

    def _within(self, name: str, value: float, least: float, most: float) -> None:
        if not least <= value <= most:
            raise PlanRefused(f"{name} must be between {least:,} and {most:,}, not {value:,}")


def check_base(text: str, *, anywhere: bool) -> str:
    """Return the URL without a path. Raises PlanRefused unless it is valid and, without `anywhere`, of this machine."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise PlanRefused(f"{text!r} is not a URL such as http://127.0.0.1:8000") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise PlanRefused(f"{text!r} is not a URL such as http://127.0.0.1:8000")
    if not anywhere:
        for address in addresses_of(parts.hostname, port or (443 if parts.scheme == "https" else 80)):
            if not is_loopback(address):
                raise PlanRefused(
                    f"{parts.hostname} is {address}, another machine; use --anywhere to send simulated visitors to it"
                )
    return f"{parts.scheme}://{parts.netloc}"


def addresses_of(host: str, port: int) -> list[str]:
    """Return every address of the host name. Raises PlanRefused if there is none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise PlanRefused(f"there is no host {host!r}") from error
    return sorted({str(entry[4][0]) for entry in found})


def is_loopback(address: str) -> bool:
    """Return whether the address is of this machine, also as an IPv4-mapped IPv6 address."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback
