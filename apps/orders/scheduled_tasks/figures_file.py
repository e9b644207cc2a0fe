"""The figures of a sale as a CSV file: a row for each section, and one for the event with its orders and revenue. No
personal data."""

from zoneinfo import ZoneInfo

from apps.events import facade as events
from apps.kernel.http.csv_download import Cell, csv_file
from apps.kernel.scheduler import facade as scheduler
from apps.orders.dashboard import figures
from apps.orders.dashboard.exports import decimal_amount

HEADER = (
    "As of", "Section", "Capacity", "Sold", "Reserved", "Left", "Blocked", "Orders", "Revenue", "Refunded", "Currency",
)  # fmt: skip
ALL = "All"


def make_figures_file(event: events.StaffEvent) -> scheduler.File:
    """Return the file with the event's figures as of now. Joins the caller's transaction."""
    found = figures.read_figures_now(event.id)
    at = found.at.astimezone(ZoneInfo(event.timezone))
    as_of = at.isoformat(sep=" ", timespec="seconds")
    rows: list[tuple[Cell, ...]] = [
        (as_of, one.name, one.capacity, one.sold, one.held, one.free, one.blocked, "", "", "", "")
        for one in found.sections
    ]
    money = [decimal_amount(minor, event.currency) for minor in (found.revenue_minor, found.refunded_minor)]
    rows.append(
        (as_of, ALL, found.capacity, found.sold, found.held, found.free, found.blocked, found.orders, *money,
         event.currency)
    )  # fmt: skip
    return scheduler.File(
        f"sales-{event.slug}-{at:%Y-%m-%d-%H%M}.csv", "text/csv; charset=utf-8", csv_file(HEADER, rows)
    )
