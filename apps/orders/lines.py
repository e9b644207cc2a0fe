"""The lines of an order: written once with it, from then on standing or canceled."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

from apps.events import facade as events
from apps.orders.models import Order, OrderLine
from apps.reservations import facade as reservations
from ticketing.kernel.transactions import require


def seat_label(seat: reservations.HeldSeat) -> str:
    return f"{seat.section_name}, row {seat.row}, seat {seat.number}"


def place_label(places: reservations.HeldPlaces, place: int) -> str:
    return f"{places.section_name}, {place} of {places.quantity}" if places.quantity > 1 else places.section_name


def places_of(reservation: reservations.ReservationView) -> Iterator[events.Place]:
    """Every place of the reservation, at the price that the hold froze."""
    for seat in reservation.seats:
        yield events.Place(seat.line_id, 1, seat_label(seat), seat.category_name, seat.price_minor)
    for places in reservation.general_admission:
        for place in range(1, places.quantity + 1):
            label = place_label(places, place)
            yield events.Place(places.line_id, place, label, places.category, places.price_minor)


def freeze(order: Order, bill: events.Bill) -> None:
    """The new order is made of this bill's lines. Joins the caller's transaction."""
    require()
    columns = [{name: value for name, value in asdict(line).items() if name != "is_canceled"} for line in bill.lines]
    OrderLine.objects.bulk_create(OrderLine(order=order, **values) for values in columns)


def cancel_all(order: Order, now: datetime) -> None:
    """Nothing of the order stands any more. Joins the caller's transaction, which holds the order's lock."""
    require()
    OrderLine.objects.filter(order=order, canceled_at=None).update(canceled_at=now)
