"""What a transaction of holds sends to PostgreSQL, and what of it travels together. What it makes of the answers is
`transaction`'s to say.

Locks come in the order of the whole system: queue entries, reservations to be replaced, cap rows, access codes, seats,
then general-admission rows. What follows from whatever is found in between may travel with an earlier lock: it may lock
a row for nobody, which is in nobody's way for longer than any lock, for who has them waits for none that comes before
them.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from operator import attrgetter
from uuid import UUID

from apps.events import facade as events
from apps.kernel.db import arrays, sql
from apps.reservations.holds import access_codes
from apps.reservations.holds.replacement import Replaced
from apps.reservations.holds.requests import HoldRequest


class LockWait(Enum):
    """What a transaction of holds waits for; the rest of what rivals have locked it passes over."""

    PLACES_ONLY = "general admission only"
    """Its rows are hot: a wait is likely, and short. One double click or one seat being decided delays nobody."""
    WAITING = "everything, in the order of all locks"
    NONE = "nothing"

    @property
    def is_waiting(self) -> bool:
        return self is LockWait.WAITING


ReplacedById = Mapping[UUID, Replaced]
"""What requests may replace, by id, locked."""

_in_order = attrgetter("int")
"""PostgreSQL's order of ids; compared as UUIDs they take ten times as long to sort."""

_PACKAGE = "apps.reservations"
_try_admissions = sql.load(_PACKAGE, "try_admissions", prepared=True)
_lock_admissions = sql.load(_PACKAGE, "lock_admissions", prepared=True)
_lock_caps = sql.load(_PACKAGE, "lock_caps", prepared=True)
_lock_caps_skipping = sql.load(_PACKAGE, "lock_caps_skipping", prepared=True)
_count_of_buyers = sql.load(_PACKAGE, "count_of_buyers", prepared=True)
_read_seats = sql.load(_PACKAGE, "read_seats", prepared=True)
_read_seats_and_sections = sql.load(_PACKAGE, "read_seats_and_sections")
_lock_seats_skipping = sql.load(_PACKAGE, "lock_seats_skipping", prepared=True)
_lock_seats_waiting = sql.load(_PACKAGE, "lock_seats_waiting", prepared=True)
_lock_general_admission = sql.load(_PACKAGE, "lock_general_admission", prepared=True)
_lock_general_admission_skipping = sql.load(_PACKAGE, "lock_general_admission_skipping", prepared=True)


def entries_of(requests: Sequence[HoldRequest]) -> list[UUID]:
    """In the order in which they are locked."""
    return sorted({request.entry_id for request in requests}, key=_in_order)


def lock_admissions_call(entry_ids: Sequence[UUID], patience: LockWait) -> sql.Call:
    """Their entries are this transaction's to decide for. The first time never waiting, so that one double click delays
    nobody else's hold. The second time it waits its bounded turn, in id order and holding nothing else yet: the second
    click then gets the first one's answer."""
    lock = _lock_admissions if patience.is_waiting else _try_admissions
    return lock.call(entry_ids=arrays.uuids(entry_ids))


def early_calls(requests: Sequence[HoldRequest], patience: LockWait) -> dict[str, sql.Call]:
    """What can travel with the entries' locks, since it follows whoever is found to be out: the locks of cap rows and
    access codes; then the look at the seats that are named, or where nobody wants anything else the locks of general
    admission. For requests that replace nothing."""
    calls = lock_caps_calls(requests, patience) | lock_codes_calls(requests, {}, patience)
    named = seats_named(requests)
    if named:
        calls["seats"] = read_seats_call(named, requests)
    elif all(request.best is None for request in requests):
        calls |= lock_places_calls(requests, {}, patience)
    return calls


def lock_caps_calls(requests: Sequence[HoldRequest], patience: LockWait) -> dict[str, sql.Call]:
    """The locks of these buyers' cap rows, where there is a cap, and under them the count of what they have."""
    capped = [request for request in requests if request.event.policy.per_buyer_max is not None]
    keys = sorted({(request.event.id, request.buyer) for request in capped})
    if not keys:
        return {}
    event_ids, buyers = arrays.numbers([one for one, _ in keys]), arrays.texts([buyer for _, buyer in keys])
    lock = _lock_caps if patience.is_waiting else _lock_caps_skipping
    return {
        "caps": lock.call(event_ids=event_ids, buyers=buyers),
        "counts": _count_of_buyers.call(event_ids=event_ids, buyers=buyers),
    }


def lock_codes_calls(
    requests: Sequence[HoldRequest], replaced: ReplacedById, patience: LockWait
) -> dict[str, sql.Call]:
    """The locks of the access codes of these requests, and what is to be known of them."""
    guarded = [
        (request, replaced[request.replaces] if request.replaces is not None else None)
        for request in requests
        if request.guarded
    ]
    return access_codes.lock_codes_calls(guarded, waiting=patience is not LockWait.NONE) if guarded else {}


def seats_named(requests: Sequence[HoldRequest]) -> list[int]:
    """In the order in which they are locked."""
    return sorted({seat_id for request in requests for seat_id in request.seats})


def read_seats_call(named: Sequence[int], requests: Sequence[HoldRequest]) -> sql.Call:
    """A look at these seats; where sections want an access code, with where the seats are."""
    guarded = any(request.guarded for request in requests)
    read = _read_seats_and_sections if guarded else _read_seats
    return read.call(seat_ids=arrays.numbers(named))


def lock_seats_call(seat_ids: Sequence[int], *, waiting: bool) -> sql.Call:
    lock = _lock_seats_waiting if waiting else _lock_seats_skipping
    return lock.call(seat_ids=arrays.numbers(seat_ids))


def lock_places_calls(
    requests: Sequence[HoldRequest], replaced: ReplacedById, patience: LockWait
) -> dict[str, sql.Call]:
    """The locks of what these requests take from general admission, and the prices, read under every lock: what is
    written freezes them."""
    wanted = {section_id for request in requests for section_id in request.quantities}
    for request in requests:
        if request.replaces is not None:
            wanted |= replaced[request.replaces].places.keys()
    lock = _lock_general_admission if patience is not LockWait.NONE else _lock_general_admission_skipping
    locking = {"places": lock.call(section_ids=arrays.numbers(sorted(wanted)))} if wanted else {}
    return {**locking, "prices": events.read_prices_call({request.event.id for request in requests})}
