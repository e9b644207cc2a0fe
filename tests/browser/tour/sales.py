"""The events, buyers and sales that the pictures of the tour show: always the same ones."""

from datetime import timedelta
from typing import Any

from apps.events import facade as events
from apps.events.announcements import service
from apps.events.creation import create_event
from apps.events.demo.load import AFTERGLOW, ORCHARD, SOLSTICE, load_demo
from apps.events.models import Event
from apps.kernel import clock
from apps.kernel.checks import auditor, reconciler
from apps.orders.checkin import door_links
from apps.orders.models import Order, ReturnPolicy, Ticket, TransferPolicy
from apps.orders.payments.providers import sandbox
from apps.orders.provider_sync import daily_comparison
from apps.orders.reports import publication
from apps.queue.entries import vip_links
from apps.queue.models import AdmissionBatch, QueueEntry
from apps.queue.room import operations
from tests.support.events.factories import block, encoded, plan, spec
from tests.support.factories import hold, join, make_event
from tests.support.orders.provider_days import stray_charge
from tests.support.orders.reported_sale import make_finished_sale, publish
from tests.support.orders.sale import buy, make_code
from tests.support.queue.rooms import join_waiting_entries, open_now

__all__ = ["AFTERGLOW", "ORCHARD", "SOLSTICE"]
TONIGHT, DRAFT, REPORTED = "night-shift", "winter-lights", "harbor-lights"
STAFF, OPERATOR = "grace.hopper@northlight.example", "grace.hopper"
BUYERS = ("Ada Byron", "Alan Kay", "Barbara Liskov", "Edsger Dijkstra", "Frances Allen", "John Backus", "Karen Jones")
ORDERS = 42
WAITING = 180


def make_all() -> None:
    load_demo()
    draft_event()
    sell_orchard()
    fill_solstice()
    open_doors()
    auditor.run_and_record()
    reconciler.run_and_record()
    report_sale()
    compare_payments()


def buyer(number: int) -> dict[str, str]:
    name = BUYERS[number % len(BUYERS)]
    return {"name": name, "email": f"{name.split()[0].lower()}.{number}@example.org"}


def sell_orchard() -> None:
    """Sell a sixth of the theatre within the last hour, faster at first."""
    event = events.get_event(ORCHARD)
    ReturnPolicy.objects.create(event_id=event.id, until_hours=48)
    TransferPolicy.objects.create(event_id=event.id)
    make_code(event, code="STUDENTS", rate=2_500)
    service.post(event.id, "The performance on Saturday has a talk with the author after it.", author=OPERATOR)
    slugs = ("stalls", "circle", "balcony")
    for number in range(ORDERS):
        size = 2 + number % 3
        wanted = {"section": slugs[number % len(slugs)], "quantity": size}
        order = buy(hold(event, best_available=wanted), **buyer(number))
        backdate(order, minutes=56 * (number / ORDERS) ** 1.7)
    for number in range(4):
        hold(event, best_available={"section": slugs[0], "quantity": 2 + number})


def backdate(order: Order, *, minutes: float) -> None:
    ago = timedelta(minutes=57 - minutes)
    Order.objects.filter(pk=order.pk).update(placed_at=order.placed_at - ago, confirmed_at=order.placed_at - ago)


def fill_solstice() -> None:
    """Let visitors wait before the festival's sale, and let an operator act on its line."""
    event = events.get_event(SOLSTICE)
    open_now(event)
    operations.set_limits(event.id, who=OPERATOR, why="a slow start", active_max=20, rate_per_second=2)
    operations.set_state(event.id, "paused", who=OPERATOR, why="the payment provider is slow")
    operations.set_state(event.id, "open", who=OPERATOR, why="payments are fast again")
    operations.set_message(event.id, "There are enough passes for everyone in line.", who=OPERATOR, why="questions")
    vip_links.make_link(event.id, note="Band members", who=OPERATOR, why="promised in the contract")
    for _ in range(20):
        join(event)
    join_waiting_entries(event, WAITING)


def open_doors() -> None:
    """Sell an event that starts within the hour, and check some of its tickets in."""
    now = clock.now()
    event = make_event(
        TONIGHT,
        name="Night Shift",
        venue="Meridian Studio",
        organizer="northlight",
        starts_at=now + timedelta(minutes=50),
        doors_at=now - timedelta(minutes=10),
        rows=6,
        general_admission=60,
    )
    for number in range(8):
        buy(hold(event, best_available={"section": "hall", "quantity": 3}), **buyer(number))
    buy(hold(event, ga_section="floor", ga_quantity=6), **buyer(9))


def door_link() -> str:
    event, now = events.get_event(TONIGHT), clock.now()
    hours = timedelta(hours=3)
    made = door_links.make_link(
        event.id, name="Vera", door="Main entrance", good_from=now - hours, good_until=now + hours, who="staff:1"
    )
    return door_links.link_url(made, event.slug)


def codes_at_the_door() -> list[str]:
    return list(Ticket.objects.filter(order__event__slug=TONIGHT).order_by("id").values_list("code", flat=True))


def draft_event() -> None:
    zones = [block("Stalls", 6, 12), block("Circle", 4, 14, category="Circle", y=360)]
    create_event(
        spec(
            DRAFT,
            name="Winter Lights",
            venue="Meridian Theatre",
            plan=encoded(plan(zones, ("Stalls", "Circle"))),
            prices={"Stalls": 4_500, "Circle": 3_000},
            general_admission=(),
            room=events.WaitingRoomSettings(rate_per_second=20, active_max=200),
            hold_seconds=3_000,
            organizer="northlight",
            draft=True,
        )
    )


def report_sale() -> None:
    complete_after = publication.COMPLETE_AFTER
    publication.COMPLETE_AFTER = timedelta(0)
    try:
        event = make_finished_sale(REPORTED, name="Harbor Lights", starts_at=clock.now() + timedelta(days=300))
        entries = QueueEntry.objects.filter(event_id=event.id).order_by("number")
        for number, entry in enumerate(entries):
            joined_at = event.policy.opens_at + timedelta(seconds=10 + 12 * number**2)
            ready_at = joined_at + timedelta(seconds=20 + 15 * number)
            QueueEntry.objects.filter(pk=entry.pk).update(joined_at=joined_at, ready_at=ready_at)
            AdmissionBatch.objects.filter(event_id=event.id, from_number=entry.number).update(at=ready_at)
        publish(event)
    finally:
        publication.COMPLETE_AFTER = complete_after


def compare_payments() -> None:
    """Let the provider's books differ from ours: a charge of no order."""
    stray_charge(amount_minor=7_200, currency="GBP")
    daily_comparison.compare_day(sandbox.NAME, clock.now().date())


def event_id(slug: str) -> int:
    return int(Event.objects.values_list("pk", flat=True).get(slug=slug))


def order_of(slug: str, **filters: Any) -> Order:
    order = Order.objects.filter(event__slug=slug, **filters).order_by("placed_at").last()
    assert order is not None
    return order
