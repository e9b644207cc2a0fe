"""The figures of an event's dashboard. They are computed at most once in a few seconds for all viewers, stored in the
event's tally, and read from there by every request."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.orders.checkin.counts import count_entered
from apps.orders.dashboard import sales_tally
from apps.orders.models import SalesTally
from apps.reservations import facade as reservations

AGE_SECONDS = 5
"""How old the figures of a dashboard may be."""
HOME_AGE_SECONDS = 60
HOME_COMPUTED_MAX = 4
"""Events whose figures one request of the home page computes; the others show their last ones."""
_LOCK_MS = 2_000

_refunded_of_event = sql.load("apps.orders", "refunded_of_event")


@dataclass(frozen=True, slots=True)
class SectionFigures:
    name: str
    capacity: int
    free: int
    held: int
    sold: int
    blocked: int


@dataclass(frozen=True, slots=True)
class Figures:
    """One event's figures at one moment. `capacity` is the sum of free, held, sold and blocked; `orders`, `tickets` and
    `gross_minor` count every sale, also of tickets that were returned since."""

    at: datetime
    sections: tuple[SectionFigures, ...]
    orders: int
    tickets: int
    gross_minor: int
    refunded_minor: int
    last_minute: int
    """Tickets sold in the last full minute and since."""
    expected: int
    entered: int

    def _sum(self, field: str) -> int:
        return sum(getattr(section, field) for section in self.sections)

    @property
    def capacity(self) -> int:
        return self._sum("capacity")

    @property
    def free(self) -> int:
        return self._sum("free")

    @property
    def held(self) -> int:
        return self._sum("held")

    @property
    def sold(self) -> int:
        return self._sum("sold")

    @property
    def blocked(self) -> int:
        return self._sum("blocked")

    @property
    def sold_and_held(self) -> int:
        return self.sold + self.held

    @property
    def revenue_minor(self) -> int:
        return self.gross_minor - self.refunded_minor

    @property
    def sold_percent(self) -> str:
        """The sold share of the capacity in words: 0%, <1%, 45%."""
        share = 100 * self.sold // self.capacity if self.capacity else 0
        return "<1%" if self.sold and not share else f"{share}%"


def read_figures(event_id: int, age_seconds: int = AGE_SECONDS) -> Figures:
    """Return the event's figures, at most `age_seconds` old unless another request is computing them."""
    stored = SalesTally.objects.filter(pk=event_id).first()
    if stored is not None and _is_fresh(stored, age_seconds):
        return _load(stored.figures)
    if stored is None:
        sales_tally.close_minutes(event_id)
    computed = _compute_alone(event_id, age_seconds)
    if computed is not None:
        return computed
    stored = SalesTally.objects.get(pk=event_id)
    return _load(stored.figures) if stored.figures else _compute(event_id)


def read_home_figures(event_ids: Iterable[int]) -> dict[int, Figures]:
    """Return the figures of these events, computing only some of those that are old or missing."""
    wanted = list(event_ids)
    stored = SalesTally.objects.in_bulk(wanted)
    found: dict[int, Figures] = {}
    left = HOME_COMPUTED_MAX
    for event_id in wanted:
        row = stored.get(event_id)
        if row is not None and _is_fresh(row, HOME_AGE_SECONDS):
            found[event_id] = _load(row.figures)
        elif left:
            left -= 1
            found[event_id] = read_figures(event_id, HOME_AGE_SECONDS)
        elif row is not None and row.figures:
            found[event_id] = _load(row.figures)
    return found


def _is_fresh(row: SalesTally, age_seconds: int) -> bool:
    return (
        bool(row.figures)
        and row.figures_at is not None
        and clock.process_now() - row.figures_at < timedelta(seconds=age_seconds)
    )


def _compute_alone(event_id: int, age_seconds: int) -> Figures | None:
    """Compute and store the figures; None if another request does so, or has just done so."""
    with transactions.write(lock_ms=_LOCK_MS):
        rows = SalesTally.objects.select_for_update(skip_locked=True, no_key=True).filter(pk=event_id)
        row = rows.first()
        if row is None or _is_fresh(row, age_seconds):
            return None
        # The time of the claim: it makes the others read the figures before until these are committed.
        row.figures_at = clock.now()
        row.save(update_fields=["figures_at"])
    figures = _compute(event_id)
    SalesTally.objects.filter(pk=event_id).update(figures=_dump(figures), figures_at=figures.at)
    return figures


def _compute(event_id: int) -> Figures:
    return _figures(event_id, sales_tally.count_sales(event_id))


def read_figures_now(event_id: int) -> Figures:
    """Return the event's figures as of now, and store nothing, for callers in a transaction."""
    return _figures(event_id, sales_tally.read_sales(event_id))


def _figures(event_id: int, sales: sales_tally.Sales) -> Figures:
    now = clock.now()
    entered = count_entered(event_id)
    with connection.cursor() as cursor:
        ((refunded_minor,),) = _refunded_of_event.rows(cursor, event_id=event_id)
    since = now.replace(second=0, microsecond=0) - timedelta(minutes=1)
    return Figures(
        at=now,
        sections=tuple(
            SectionFigures(row.section.name, row.capacity, row.free, row.held, row.sold, row.blocked)
            for row in reservations.read_section_stock(event_id)
        ),
        orders=sales.orders,
        tickets=sales.tickets,
        gross_minor=sales.gross_minor,
        refunded_minor=refunded_minor,
        last_minute=sum(one.tickets for one in sales_tally.read_bins(event_id, since, 60)),
        expected=entered.expected,
        entered=entered.entered,
    )


def _dump(figures: Figures) -> dict[str, Any]:
    return {**asdict(figures), "at": figures.at.isoformat()}


def _load(stored: dict[str, Any]) -> Figures:
    sections = tuple(SectionFigures(**section) for section in stored["sections"])
    return Figures(**{**stored, "at": datetime.fromisoformat(stored["at"]), "sections": sections})
