"""The arrangement of seats: the order of rows from the front, neighbors along a row, and the ranking of seats.

It uses coordinates only, because files differ in everything else: rows may run in any direction, bend, or be listed
back to front.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean

from apps.events.plans.plan import PlanSeat

Point = tuple[float, float]

# A gap wider than this many typical gaps is an aisle: the seats on both sides are not neighbors.
AISLE_GAPS = 1.75
# A row counts as bent back on itself only if its path in file order is shorter than this share of the sorted path.
_SHORTER_PATH_RATIO = 0.999


@dataclass(frozen=True, slots=True)
class RawSeat:
    """A seat as read from the file, in absolute coordinates."""

    guid: str
    number: str
    x: float
    y: float
    category: int
    accessible: bool
    companion: bool


@dataclass(frozen=True, slots=True)
class RawRow:
    label: str
    seats: Sequence[RawSeat]


@dataclass(frozen=True, slots=True)
class Stage:
    """The stage or field that the seats face, as the corners of its bounding box."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def center(self) -> Point:
        return ((self.left + self.right) / 2, (self.top + self.bottom) / 2)

    def distance(self, x: float, y: float) -> float:
        """Return the distance from the point to the nearest edge; 0 inside."""
        return math.hypot(max(self.left - x, 0.0, x - self.right), max(self.top - y, 0.0, y - self.bottom))


def arrange_section(rows: Sequence[RawRow], stage: Stage | None, axis: Point | None) -> tuple[PlanSeat, ...]:
    """Return the section's seats with row_index, place_index and rank, row by row from the front.

    The front is nearest to the stage, or first in the file if the plan has no stage. `axis` is the direction from the
    stage to the seats (see `seating_axis`): with it, the middle of a row is where the row crosses that line; without
    it, the middle of its own length.
    """
    ordered = [(row, _sort_along_row(row.seats)) for row in rows if row.seats]
    if stage is not None:
        # Rounded, so that rows at the same distance keep the order of the file (the sort is stable).
        ordered.sort(key=lambda pair: round(fmean(stage.distance(seat.x, seat.y) for seat in pair[1]), 3))
    section_gap = _typical_gap([gap for _, seats in ordered for gap in _gaps(seats)])
    placed: list[PlanSeat] = []
    for row_index, (row, seats) in enumerate(ordered):
        gaps = _gaps(seats)
        typical = _typical_gap(gaps) if len(gaps) >= 4 else section_gap
        place_indexes = [0]
        for gap in gaps:
            place_indexes.append(place_indexes[-1] + (2 if typical > 0 and gap > AISLE_GAPS * typical else 1))
        ranks = _rank_from_middle(seats, stage, axis)
        first = len(placed) + 1
        placed += [
            PlanSeat(
                guid=seat.guid,
                row=row.label,
                number=seat.number,
                x=seat.x,
                y=seat.y,
                category=seat.category,
                row_index=row_index,
                place_index=place_index,
                rank=first + rank,
                accessible=seat.accessible,
                companion=seat.companion,
            )
            for seat, place_index, rank in zip(seats, place_indexes, ranks, strict=True)
        ]
    return tuple(placed)


def seating_axis(stage: Stage | None, points: Sequence[Point]) -> Point | None:
    """Return the direction from the stage to the seats as a unit vector, or None if the seats surround the stage or the
    plan has no stage, so that there is no such direction."""
    if stage is None or not points:
        return None
    middle_x, middle_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    origin_x, origin_y = stage.center
    away_x, away_y = middle_x - origin_x, middle_y - origin_y
    reach = max(math.hypot(x - origin_x, y - origin_y) for x, y in points)
    length = math.hypot(away_x, away_y)
    return None if reach == 0 or length < 0.15 * reach else (away_x / length, away_y / length)


def _sort_along_row(seats: Sequence[RawSeat]) -> list[RawSeat]:
    """Return the seats in the order along the row. A straight row in any direction is sorted along it; a row that bends
    back on itself keeps the order of the file if that path is shorter."""
    listed = list(seats)
    if len(listed) < 3:
        return sorted(listed, key=lambda seat: (seat.x, seat.y))
    mean_x, mean_y = fmean(seat.x for seat in listed), fmean(seat.y for seat in listed)
    spread_x = sum((seat.x - mean_x) ** 2 for seat in listed)
    spread_y = sum((seat.y - mean_y) ** 2 for seat in listed)
    shared = sum((seat.x - mean_x) * (seat.y - mean_y) for seat in listed)
    angle = math.atan2(2 * shared, spread_x - spread_y) / 2  # the principal direction
    along_x, along_y = math.cos(angle), math.sin(angle)
    if along_x < -1e-9 or (abs(along_x) <= 1e-9 and along_y < 0):
        along_x, along_y = -along_x, -along_y
    sorted_seats = sorted(listed, key=lambda seat: round(seat.x * along_x + seat.y * along_y, 6))
    return listed if sum(_gaps(listed)) < sum(_gaps(sorted_seats)) * _SHORTER_PATH_RATIO else sorted_seats


def _gaps(seats: Sequence[RawSeat]) -> list[float]:
    return [math.hypot(after.x - before.x, after.y - before.y) for before, after in pairwise(seats)]


def _typical_gap(gaps: Sequence[float]) -> float:
    """Return the lower quartile of the gaps above 0, not the median: a row of pairs has as many aisles as gaps between
    neighbors."""
    real = sorted(gap for gap in gaps if gap > 0)
    return real[(len(real) - 1) // 4] if real else 0.0


def _rank_from_middle(seats: Sequence[RawSeat], stage: Stage | None, axis: Point | None) -> list[int]:
    """Return the rank of each seat of a row: its position, from 0, in the order from the middle outward."""
    # Distances along the row, so that a bent row has its middle where a person would see it.
    walked = [0.0, *accumulate(_gaps(seats))]
    off = [abs(at - walked[-1] / 2) for at in walked]
    if stage is not None and axis is not None:
        origin_x, origin_y = stage.center
        aside = [(seat.x - origin_x) * axis[1] - (seat.y - origin_y) * axis[0] for seat in seats]
        # Only a row that runs across the axis uses it. A row that runs away from the stage keeps its own middle.
        if max(aside) - min(aside) > walked[-1] / 2:
            off = [abs(distance) for distance in aside]
    order = sorted(range(len(seats)), key=lambda index: (round(off[index], 3), index))
    ranks = [0] * len(seats)
    for rank, index in enumerate(order):
        ranks[index] = rank
    return ranks
