"""The result of screening a join, which the join's transaction uses."""

from typing import NamedTuple


class Screening(NamedTuple):
    needs_work: bool = False
    """Whether a new entry needs `work`. An existing one is returned without it."""
    work: bytes | None = None
    """The id of the solved challenge or the passed delay, which a new entry uses up."""
    score: int = 0
    reasons: str = ""
    for_review: bool = False
    """Whether a new entry waits for the organizer's review."""


UNSCREENED = Screening()
"""For rooms without screening, and for joins that staff have approved, such as those by a VIP link."""
