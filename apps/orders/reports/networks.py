"""The shares of networks in a sale's report.

The first publication counts a tally from the digests that entries keep, and deletes them and their key: the tally has
counts only. Later publications and verifications compute the figures from the tally and the ledger, whatever is erased
meanwhile. A network is an IPv4 /24 or an IPv6 /48, from which a buyer joined the line.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any, NamedTuple

from apps.events import facade as events
from apps.orders.models import NetworkTally
from apps.orders.reports.disclosure import PEOPLE_MIN, merge_smallest, withhold_small
from apps.queue import facade as queue
from apps.reservations import facade as reservations

NOT_RECORDED = "not recorded"
NETWORK_KINDS = ("ipv4", "ipv6")
KINDS = (*NETWORK_KINDS, "other", "unrecorded")
"""`other`: exempt, local and unknown addresses. `unrecorded`: an entry without a digest, or a later purchase."""
LARGEST = (1, 5, 10)
LARGEST_PERMILLE = 10


class TallyContradicted(ValueError):
    """The tally does not agree with the ledger; the message says where."""


class Row(NamedTuple):
    """How many networks of one kind have this many tickets and buyers. All other addresses, and all unrecorded ones,
    count as one network. A buyer who bought from several networks counts at the one with the most tickets."""

    kind: str
    tickets: int
    buyers: int
    networks: int


@dataclass(frozen=True, slots=True)
class Tally:
    rows: tuple[Row, ...]
    as_of: datetime
    is_stored: bool
    has_digests: bool = False
    """Whether it was counted from digests, which are still stored with their key."""

    def sum_of(self, kind: str) -> tuple[int, int]:
        """Return the buyers and tickets of the networks of this kind."""
        rows = [row for row in self.rows if row.kind == kind]
        return sum(row.buyers * row.networks for row in rows), sum(row.tickets * row.networks for row in rows)


def read_tally(event_id: int) -> Tally | None:
    """Return the tally that the first publication has stored."""
    found = NetworkTally.objects.filter(pk=event_id).first()
    return None if found is None else Tally(tuple(Row(*row) for row in found.rows), found.as_of, is_stored=True)


def count_tally(event: events.EventView, as_of: datetime) -> Tally:
    """Count a new tally from the digests. Without a key nothing was recorded, or some digests may be blanked already:
    then all purchases are unrecorded."""
    if not queue.has_network_key(event.id):
        return Tally((), as_of, is_stored=False)
    tickets = reservations.report_figures().count_networks(event.id, as_of)
    return Tally(tuple(tally_networks(tickets)), as_of, is_stored=False, has_digests=True)


def tally_networks(tickets: Mapping[bytes | None, Mapping[str, int]]) -> Iterable[Row]:
    """Yield the rows, the largest networks first, from the tickets by digest and buyer."""
    seen: set[str] = set()
    counts: Counter[tuple[str, int, int]] = Counter()
    # By digest among equals, whose order is random: it has no meaning, but is always the same.
    for found, of_buyers in sorted(tickets.items(), key=lambda item: (-sum(item[1].values()), item[0] or b"")):
        counts[queue.kind_of_network(found), sum(of_buyers.values()), len(of_buyers.keys() - seen)] += 1
        seen.update(of_buyers)
    for (kind, bought, buyers), count in sorted(counts.items(), key=lambda item: (-item[0][1], -item[0][2], item[0])):
        yield Row(kind, bought, buyers, count)


def store_tally(event_id: int, tally: Tally) -> None:
    """Store a counted tally. Joins the caller's transaction."""
    NetworkTally.objects.create(event_id=event_id, as_of=tally.as_of, rows=[list(row) for row in tally.rows])


def describe_networks(tally: Tally | None, as_of: datetime, buyers: int, tickets: int) -> dict[str, Any] | str:
    """Return the shares of networks among these buyers and tickets, which the ledger has as of this moment.

    Raises TallyContradicted if the ledger has fewer than the tally.
    """
    if tally is None or as_of < tally.as_of or not any(tally.sum_of(kind)[1] for kind in KINDS[:-1]):
        return NOT_RECORDED
    sums = {kind: tally.sum_of(kind) for kind in KINDS}
    later_buyers, later_tickets = (
        total - sum(found[at] for found in sums.values()) for at, total in enumerate((buyers, tickets))
    )
    if min(later_buyers, later_tickets) < 0 or (as_of == tally.as_of and (later_buyers or later_tickets)):
        raise TallyContradicted("the tally of networks and the ledger have other numbers of buyers or tickets")
    sums["unrecorded"] = (sums["unrecorded"][0] + later_buyers, sums["unrecorded"][1] + later_tickets)
    groups = [((kind,), count, bought) for kind, (count, bought) in sums.items()]
    rows = [row for row in tally.rows if row.kind in NETWORK_KINDS]
    return {
        "kinds": [
            {"kinds": list(kinds), "buyers": count, "tickets": bought}
            for kinds, count, bought in merge_smallest(groups, KINDS)
        ],
        "networks": withhold_small(sum(row.networks for row in rows)),
        "largest": _largest(rows),
    }


def _largest(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the shares of the largest networks, without those from which the purchases of fewer than PEOPLE_MIN people
    could be computed: the people of a share, those between it and the next smaller one, and all others."""
    networks = [(row.tickets, row.buyers) for row in rows for _ in range(row.networks)]
    all_tickets, all_buyers = (sum(network[at] for network in networks) for at in (0, 1))
    wanted: list[tuple[int, int | None]] = [(count, None) for count in LARGEST if count < len(networks)]
    share = ceil(len(networks) * LARGEST_PERMILLE / 1000)
    if len(networks) >= 1000 // LARGEST_PERMILLE:
        wanted.append((share, LARGEST_PERMILLE))
    shown: list[dict[str, Any]] = []
    last_count = last_buyers = 0
    for count, permille in sorted(wanted, key=lambda one: (one[0], one[1] or 0)):
        buyers = sum(network[1] for network in networks[:count])
        is_same = count == last_count
        if all_buyers - buyers < PEOPLE_MIN or (not is_same and buyers - last_buyers < PEOPLE_MIN):
            continue
        tickets = sum(network[0] for network in networks[:count])
        shown.append(
            {
                "networks": count,
                "networks_permille": permille,
                "buyers": buyers,
                "tickets_permille": round(1000 * tickets / all_tickets),
            }
        )
        last_count, last_buyers = count, buyers
    return shown
