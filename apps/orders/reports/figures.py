"""The figures of a sale's report. They follow from the ledger, the tally of networks and the published proof alone, so
they can be computed again for the same moment (`manage.py verify_report`). All numbers are whole numbers; money is not
part of a report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from math import ceil
from typing import Any

from apps.events import facade as events
from apps.orders.reports.disclosure import (
    PEOPLE_MIN,
    coarsen,
    merge_small,
    split,
    withhold_small,
    withhold_small_flows,
)
from apps.orders.reports.networks import Tally, describe_networks
from apps.queue import facade as queue
from apps.reservations import facade as reservations

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
POINTS_SECONDS = (
    0, 5, 10, 20, 30, 45, _MINUTE, 90, 2 * _MINUTE, 3 * _MINUTE, 5 * _MINUTE, 7 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE,
    20 * _MINUTE, 30 * _MINUTE, 45 * _MINUTE, _HOUR, 90 * _MINUTE, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY,
    2 * _DAY, 3 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY, 60 * _DAY, 90 * _DAY, 180 * _DAY, 365 * _DAY,
)  # fmt: skip
"""The points in time of every curve, after the opening: close together in the first minutes, which decide a sale."""
WAITS_SECONDS = (
    10, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 20 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 4 * _HOUR,
    8 * _HOUR, _DAY,
)  # fmt: skip
TICKETS_OF_BUYER = (1, 2, 3, 4, 6, 8, 10, 20, 50, 100)
LARGEST_PERMILLE = (10, 100)

COMPUTED = ("people", "waits", "admission", "holds", "stock_curve", "shares", "acts")
"""The parts that follow from the ledger up to one moment, whenever they are computed."""


def points_until(opens_at: datetime, as_of: datetime) -> list[int]:
    """Return the points in time of the curves; the last one is just after `as_of`."""
    end = max(1, int((as_of - opens_at) // timedelta(seconds=1)) + 1)
    return [*(point for point in POINTS_SECONDS if point < end), end]


def compute_figures(event: events.EventView, as_of: datetime, tally: Tally | None) -> dict[str, Any]:
    """Return the parts in COMPUTED, as of this moment. Reads the ledger in short pieces. Raises TallyContradicted if
    the tally of networks does not agree with it."""
    points = points_until(event.policy.opens_at, as_of)
    line = queue.report_figures().count_line(event, as_of, points)
    sale = reservations.report_figures().count_sale(event, as_of, points)
    buyers = len(sale.tickets_of_buyers)
    tickets = sum(sale.tickets_of_buyers.values())
    flows = withhold_small_flows({what: sale.reservations[what] for what in reservations.report_figures().FLOWS})
    return {
        "people": {
            "joined": line.joined,
            "lobby": line.lobby,
            "priority": line.priority,
            "admitted": line.admitted,
            "buyers": withhold_small(buyers),
            "joined_by_account": _by_account(line.joined, line.accounts),
        },
        "waits": _waits(line.waits),
        "admission": {
            "admissions": sum(line.admissions.values()),
            "by_reason": dict(sorted(line.admissions.items())),
            "points_seconds": points,
            "joined": coarsen(list(accumulate(line.joined_at)), line.joined_at),
            "admitted": coarsen(list(accumulate(line.admissions_at)), line.admissions_at),
        },
        "holds": {what: {"reservations": count, "tickets": sale.tickets[what]} for what, count in flows.items()},
        "stock_curve": {
            "points_seconds": points,
            "held": coarsen(list(accumulate(sale.held_at)), sale.steps_at),
            "sold": coarsen(list(accumulate(sale.sold_at)), sale.steps_at),
        },
        "shares": {
            "tickets": tickets,
            "buyers_by_account": _by_account(buyers, sale.account_buyers),
            **_shares(sale.tickets_of_buyers),
            "by_network": describe_networks(tally, as_of, buyers, tickets),
        },
        "acts": {
            "room": {"performed": line.performed, "refused": line.refused},
            "stock": {"performed": sale.performed, "refused": sale.refused},
        },
    }


def _by_account(total: int, with_account: int) -> dict[str, int] | None:
    parts = split(with_account, total - with_account)
    return None if parts is None else {"accounts": parts[0], "guests": parts[1]}


def _waits(waits: Counter[int]) -> dict[str, Any]:
    ordered = sorted(waits.items())
    groups = []
    for low, high in zip((-1, *WAITS_SECONDS), (*WAITS_SECONDS, None), strict=True):
        people = sum(count for waited, count in ordered if low < waited and (high is None or waited <= high))
        groups.append((high, people, 0))
    return {
        "counted": sum(waits.values()),
        **{f"p{percent}_seconds": _percentile(ordered, percent) for percent in (50, 90, 99)},
        "histogram": [{"up_to_seconds": bound, "people": people} for bound, people, _ in merge_small(groups)],
    }


def _percentile(ordered: Sequence[tuple[int, int]], percent: int) -> int | None:
    """Return the wait that this share of people did not exceed; None if fewer than PEOPLE_MIN waited longer."""
    total = sum(count for _, count in ordered)
    if total * (100 - percent) < PEOPLE_MIN * 100:
        return None
    rank, passed = ceil(total * percent / 100), 0
    for waited, count in ordered:
        passed += count
        if passed >= rank:
            return waited
    raise AssertionError("not reached")


def _shares(tickets_of_buyers: Mapping[str, int]) -> dict[str, Any]:
    """Return how the bought tickets are spread over the buyers."""
    bought = sorted(tickets_of_buyers.values(), reverse=True)
    groups = []
    for low, high in zip((0, *TICKETS_OF_BUYER), (*TICKETS_OF_BUYER, None), strict=True):
        those = [count for count in bought if low < count and (high is None or count <= high)]
        groups.append((high, len(those), sum(those)))
    largest = []
    for permille in LARGEST_PERMILLE:
        buyers = ceil(len(bought) * permille / 1000)
        if buyers >= PEOPLE_MIN:
            tickets = sum(bought[:buyers])
            largest.append({"buyers_permille": permille, "tickets_permille": round(1000 * tickets / sum(bought))})
    return {
        "tickets_per_buyer": [
            {"up_to_tickets": bound, "buyers": buyers, "tickets": tickets}
            for bound, buyers, tickets in merge_small(groups)
        ],
        "largest_buyers": largest,
    }
