from apps.kernel.http.problems import NotFound, Problem


class NotAdmitted(Problem):
    type, status, title = "not-admitted", 429, "It is not your turn yet."
    retry_after_seconds = 2


class AdmissionExpired(Problem):
    type, status, title = "admission-expired", 410, "Your time to choose has ended. Join the line again."


class NotOnSale(Problem):
    """Sales have not opened yet (then with `opens_at`), have closed, or the event is canceled."""

    type, status, title = "not-on-sale", 409, "This event is not on sale."


class PresaleOnly(Problem):
    """Until `until` only visitors who meet the `condition` may join: `code`, with an access code of the event;
    `account`, with a confirmed account; `sign_up`, with one that has signed up for the draw."""

    type, status, title = "presale-only", 403, "This is a presale, which is not open to all visitors."


class PresaleCodeInUse(Problem):
    """All uses of the code are taken: by reservations, and by visitors in line, who may yet return theirs."""

    type, status, title = "presale-code-in-use", 409, "All uses of this access code are taken."


class AlreadySignedUp(Problem):
    """Another account with the same mailbox has signed up for the draw of this event."""

    type, status, title = "already-signed-up", 409, "You have already signed up, with another account."


class EntryNotFound(NotFound):
    title = "You are not in this line. Join it first."


class StillHolding(Problem):
    """A visitor cannot leave with a reservation: it could not be paid for, and joining again would allow another."""

    type, status, title = "still-holding", 409, "You still have reserved tickets. Pay for them or release them first."


class RoomDrained(Problem):
    type, status, title = "room-drained", 409, "This line is closed."


class ActRefused(ValueError):
    """An operation is refused; nothing has changed. The message states why."""


class LinkRefused(Exception):
    """A VIP link is not valid. The text is the reason: used, revoked, expired, foreign or damaged."""


class StaleLeader(RuntimeError):
    """A later leader has ticked this room, so this process is no longer the leader."""
