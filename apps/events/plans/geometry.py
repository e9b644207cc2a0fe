"""Outlines of sections and of drawn areas."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from apps.events.plans.arrangement import Point
from apps.events.plans.plan import Area

_CIRCLE_POINTS = 32


def convex_hull(points: Iterable[Point], margin: float = 0.0) -> list[Point]:
    """Return the corners of the convex hull in order around it, with each side `margin` outside of the points."""
    bare = _hull(sorted(set(points)))
    if margin <= 0 or not bare:
        return bare
    # The hull of small octagons around every corner is the hull moved outward, with cut corners.
    near, far = margin * math.sin(math.pi / 8), margin * math.cos(math.pi / 8)
    turns = [(far, near), (near, far), (-near, far), (-far, near), (-far, -near), (-near, -far), (near, -far),
             (far, -near)]  # fmt: skip
    return _hull(sorted((x + dx, y + dy) for x, y in bare for dx, dy in turns))


def rows_outline(rows: Sequence[Sequence[Point]], margin: float) -> list[Point]:
    """Return the outline of rows that follow each other: along the front row and back along the last row.

    It follows bent rows, where a hull would include the space that they are bent around. Rows in another arrangement
    (scattered tables, seats around a stage) get their hull.
    """
    everything = [point for row in rows for point in row]
    stacked = _align_directions([list(row) for row in rows if len(row) >= 2])
    if len(stacked) < 2:
        return convex_hull(everything, margin)
    # From the rows in between, include only ends on the hull, so that longer rows add no steps to the outline.
    corners = set(_hull(sorted(set(everything))))
    left = [row[0] for row in stacked[1:-1] if row[0] in corners]
    right = [row[-1] for row in stacked[1:-1] if row[-1] in corners]
    ring = [*_thin_row(stacked[0]), *right, *reversed(_thin_row(stacked[-1])), *reversed(left)]
    wide = _expand_ring(ring, margin)
    inside = sum(_contains(wide, point) for point in everything)
    return wide if inside == len(everything) and not _crosses_itself(wide) else convex_hull(everything, margin)


_ROW_POINTS_MAX = 14  # points kept per row: even the widest bent row still looks round


def _thin_row(row: Sequence[Point]) -> list[Point]:
    if len(row) <= _ROW_POINTS_MAX:
        return list(row)
    return [row[round(step * (len(row) - 1) / (_ROW_POINTS_MAX - 1))] for step in range(_ROW_POINTS_MAX)]


def _align_directions(rows: list[list[Point]]) -> list[list[Point]]:
    """Return the rows, each starting at the end where the previous row starts."""
    for before, row in pairwise(rows):
        straight = math.dist(before[0], row[0]) + math.dist(before[-1], row[-1])
        crossed = math.dist(before[0], row[-1]) + math.dist(before[-1], row[0])
        if crossed < straight:
            row.reverse()
    return rows


def _expand_ring(ring: Sequence[Point], margin: float) -> list[Point]:
    """Return the ring with every side moved outward. Corners that would stick out far are cut."""
    area = sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise([*ring, ring[0]]))
    outward = margin if area > 0 else -margin
    sides = []
    for a, b in pairwise([*ring, ring[0]]):
        length = math.dist(a, b)
        if length > 0:
            dx, dy = (b[1] - a[1]) / length * outward, (a[0] - b[0]) / length * outward
            sides.append(((a[0] + dx, a[1] + dy), (b[0] + dx, b[1] + dy), b))
    wide: list[Point] = []
    for (_, end, corner), (start, _, _) in pairwise([*sides, sides[0]] if sides else []):
        # A corner becomes its two moved ends with a tip between them; a slight turn becomes the middle of both ends.
        if math.dist(end, start) > margin * 0.5:
            middle = ((end[0] + start[0]) / 2 - corner[0], (end[1] + start[1]) / 2 - corner[1])
            reach = math.hypot(*middle)
            tip = (corner[0] + middle[0] * margin / reach, corner[1] + middle[1] * margin / reach) if reach else corner
            wide += [end, tip, start]
        else:
            wide.append(((end[0] + start[0]) / 2, (end[1] + start[1]) / 2))
    return wide


def _contains(ring: Sequence[Point], point: Point) -> bool:
    x, y = point
    inside = False
    for (ax, ay), (bx, by) in pairwise([*ring, ring[0]] if ring else []):
        if (ay > y) != (by > y) and x < (bx - ax) * (y - ay) / (by - ay) + ax:
            inside = not inside
    return inside


def _crosses_itself(ring: Sequence[Point]) -> bool:
    sides = list(pairwise([*ring, ring[0]] if ring else []))
    return any(
        _cross_product(a, b, c) * _cross_product(a, b, d) < 0 and _cross_product(c, d, a) * _cross_product(c, d, b) < 0
        for index, (a, b) in enumerate(sides)
        for c, d in sides[index + 2 :]
    )


def _hull(points: Sequence[Point]) -> list[Point]:
    if len(points) < 3:
        return list(points)

    def half(run: Iterable[Point]) -> list[Point]:
        line: list[Point] = []
        for point in run:
            while len(line) >= 2 and _cross_product(line[-2], line[-1], point) <= 0:
                line.pop()
            line.append(point)
        return line[:-1]

    return half(points) + half(reversed(points))


def _cross_product(a: Point, b: Point, c: Point) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def area_outline(area: Area) -> list[Point]:
    """Return the corners of the area as drawn, with its rotation applied; a text without a shape has none."""
    match area.shape:
        case "rectangle":
            corners = [
                (area.x, area.y),
                (area.x + area.width, area.y),
                (area.x + area.width, area.y + area.height),
                (area.x, area.y + area.height),
            ]
        case "circle" | "ellipse":
            wide, high = (area.radius, area.radius) if area.shape == "circle" else (area.rx, area.ry)
            steps = [2 * math.pi * step / _CIRCLE_POINTS for step in range(_CIRCLE_POINTS)]
            corners = [(area.x + wide * math.cos(step), area.y + high * math.sin(step)) for step in steps]
        case "polygon":
            corners = list(area.points)
        case _:
            corners = []
    if not area.rotation:
        return corners
    turn = math.radians(area.rotation)
    cosine, sine = math.cos(turn), math.sin(turn)
    return [
        (
            area.x + (x - area.x) * cosine - (y - area.y) * sine,
            area.y + (x - area.x) * sine + (y - area.y) * cosine,
        )
        for x, y in corners
    ]
