"""Screens a join before its transaction: whether it needs proof of work, and whether its entry goes to review.

Everything is decided without I/O, on the fast path and on the site alike. A solution is bound to the event and the
visitor; that it is used once is decided by the join's transaction.
"""

from typing import Any

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.fastpath import cache
from apps.kernel.proof_of_work import challenges, delays
from apps.kernel.proof_of_work.arrivals import Arrivals
from apps.kernel.proof_of_work.challenges import WorkRequired
from apps.queue.identity.caller import Caller
from apps.queue.models import WaitingRoom
from apps.queue.screening import score as join_score
from apps.queue.screening.policy import Policy
from apps.queue.screening.result import UNSCREENED, Screening

PRESSING_USAGE = 0.5
"""An address or network that has used this share of its bucket needs work, although the event is not under pressure."""
_arrivals = Arrivals("join")
_devices = cache.register(join_score.DeviceNetworks())


def device_of(caller: Caller) -> str:
    """Return the identity for which a caller joins."""
    if caller.entry_id is not None:
        return f"entry:{caller.entry_id}"
    return f"visitor:{caller.visitor_id}" if caller.account_id is None else f"account:{caller.account_id}"


def binding_of(event: events.EventView, caller: Caller) -> str:
    """Return the binding of challenges and delays of this join. Those of the lobby and of a presale are not valid
    afterwards: programs would solve them, or wait, in advance of the general sale."""
    now = clock.process_now()
    phase = "sale" if event.presale_at(now) is None else "presale"
    return f"join {event.id} {'lobby' if now < event.policy.opens_at else phase} {device_of(caller)}"


def screen(
    event: events.EventView,
    policy: Policy,
    caller: Caller,
    address: str,
    *,
    proof: str = "",
    delay: str = "",
    has_entry: bool = False,
    has_presale_access: bool = False,
) -> Screening:
    """Return the result of screening this join. `proof` is the client's solution, `delay` a token of `delays`.

    `has_entry`: the caller has proved that it had an entry here, which may still be live; the transaction decides.
    Raises WorkRequired for any other caller that needs work and has not done it.

    Before the opening, and during a presale without access to it, no challenge is created, or programs would solve them
    in advance: the transaction refuses such joins, as it does without screening.
    """
    if policy.is_off:
        return UNSCREENED
    if not takes_joins(event) or (event.presale_at(clock.process_now()) is not None and not has_presale_access):
        return Screening(needs_work=True)
    device = device_of(caller)
    work, seconds, earlier_points = None, None, 0
    if proof:
        solution = challenges.verify(proof, binding_of(event, caller))
        if solution is not None:
            work, seconds, earlier_points = solution
    elif delay:
        waited = delays.verify(delay, binding_of(event, caller))
        if waited is not None and not waited.seconds_left:
            work = waited.id
    if work is None:
        _arrivals.count(address, str(event.id))
    needs_work = policy.when == WaitingRoom.Screening.ON or _is_pressing(event, address)
    if needs_work and work is None and not has_entry:
        detail = "The proof is not valid for this event and visitor, or it has expired." if proof else ""
        raise WorkRequired(detail)
    # The challenge may have been asked for at another address, or at a time when many were.
    score = join_score.assess(caller, device, address, _arrivals, _devices, seconds).raised_to(earlier_points)
    for_review = policy.review_score is not None and score.points >= policy.review_score
    return Screening(needs_work, work, max(0, score.points), score.reasons[:200], for_review)


def takes_joins(event: events.EventView) -> bool:
    """Return whether the event is on sale or has an open lobby, by this process's clock."""
    now = clock.process_now()
    room = event.policy.room
    if room is not None and room.lobby_opens_at is not None and now >= room.lobby_opens_at:
        return not event.is_over(now)
    return event.selling_state(now) == "on_sale"


def create_challenge(event: events.EventView, caller: Caller, address: str) -> dict[str, Any]:
    """Return a challenge for this join, whose work grows with the score."""
    points = join_score.assess(caller, device_of(caller), address, _arrivals, _devices).points
    return challenges.create(binding_of(event, caller), challenges.steps_for(points), points)


def add_challenge(
    refusal: WorkRequired, event: events.EventView, caller: Caller, secret: str, address: str
) -> WorkRequired:
    """Return the refusal with a challenge. A client that joins with a visitor secret also gets it, because it must send
    it with the solution, as its `visitor_id`."""
    extra: dict[str, Any] = {"visitor_id": secret} if secret else {}
    return WorkRequired(refusal.detail, challenge=create_challenge(event, caller, address), **extra)


def create_delay(event: events.EventView, caller: Caller, address: str) -> str:
    """Return the token of a delay for this join."""
    return delays.create(binding_of(event, caller), address)


def seconds_left(event: events.EventView, caller: Caller, delay: str) -> float | None:
    """Return the seconds until the delay has passed; None if the token is not of this event and visitor."""
    waited = delays.verify(delay, binding_of(event, caller))
    return None if waited is None else waited.seconds_left


def _is_pressing(event: events.EventView, address: str) -> bool:
    return _arrivals.is_under_pressure(str(event.id)) or max(_arrivals.usage(address)) >= PRESSING_USAGE
