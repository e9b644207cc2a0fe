from apps.kernel.http.problems import NotFound, Problem


class NotAdmitted(Problem):
    type, status, title = "not-admitted", 429, "It is not your turn yet."
    retry_after_seconds = 2


class AdmissionExpired(Problem):
    type, status, title = "admission-expired", 410, "Your time to choose is over; join again."


class NotOnSale(Problem):
    """Before the opening (then `opens_at` says when), after the closing, or canceled."""

    type, status, title = "not-on-sale", 409, "This event is not on sale now."


class EntryNotFound(NotFound):
    title = "You have no place in this line; join it first."


class StillHolding(Problem):
    """Whoever leaves could not pay any more, and joining again could hold twice."""

    type, status, title = "still-holding", 409, "You still hold places: give them back first, or pay for them."


class RoomDrained(Problem):
    type, status, title = "room-drained", 409, "Nothing is left to wait for."


class ActRefused(ValueError):
    """An act on a room that cannot be done to it as it stands. The message says why."""


class LinkRefused(Exception):
    """A VIP link that lets nobody through. Its text is the reason: used, revoked, expired, foreign or damaged."""


class StaleLeader(RuntimeError):
    """A younger leader has ticked this room: whoever meets it leads no more."""
