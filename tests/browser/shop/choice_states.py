"""States of the pages on which tickets are chosen and reserved, and of the bar of reserved seats."""

from datetime import timedelta

from apps.events import facade as events
from apps.events.models import OnSale
from apps.kernel import clock
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.browser.shop.shop import Shop, States, deliver_everything
from tests.support.factories import backdate_deadline, hold, make_access_code, make_event
from tests.support.orders.sale import place_order
from tests.support.queue.rooms import make_room
from tests.support.races import in_another_connection

STATES = States()


def enter(shop: Shop, view: str) -> None:
    """Open the ticket selection of an event with seats of two prices, wheelchair spaces and unreserved tickets."""
    shop.join(events.get_event("seated"))
    shop.open(f"/events/seated/choose?view={view}")


def show_map(shop: Shop) -> None:
    enter(shop, "map")
    shop.page.locator("[data-seat-map][data-ready=yes]").wait_for()


@STATES.add(tablet=True)
def seat_map(shop: Shop) -> None:
    make_event(
        "seated",
        general_admission=200,
        further=(("Balcony", 50, 1_500),),
        accessible=frozenset({"hall-E-1", "hall-E-2"}),
        tiers={"Gold": 9_000},
        tier_of={"hall-A": "Gold"},
    )
    show_map(shop)


@STATES.add()
def seat_map_with_filter(shop: Shop) -> None:
    show_map(shop)
    shop.page.locator("[data-price-filter] button").first.click()


@STATES.add()
def seat_map_zoomed_with_selection(shop: Shop) -> None:
    show_map(shop)
    shop.page.locator("[data-map-zoom=in]").click()
    shop.page.get_by_role("listbox").focus()
    for _ in range(8):
        shop.page.keyboard.press("Enter")
        if shop.page.locator("[data-tray-seats] li").count():
            break
        shop.page.keyboard.press("ArrowRight")
    shop.page.locator("[data-tray-seats] li").first.wait_for()


@STATES.add(tablet=True)
def seat_list(shop: Shop) -> None:
    hold(events.get_event("seated"), seats=["hall-A-1"])
    enter(shop, "list")


@STATES.add()
def seat_list_with_selection(shop: Shop) -> None:
    enter(shop, "list&seats=hall-C-4&seats=hall-C-5")


@STATES.add()
def seat_just_taken(shop: Shop) -> None:
    enter(shop, "list&seats=hall-B-4&seats=hall-B-5")
    in_another_connection(lambda: hold(events.get_event("seated"), seats=["hall-B-4"]))
    shop.press(".tray button[type=submit]")
    shop.page.locator(".notice--gone").wait_for()


@STATES.add()
def seat_list_without_selection_refused(shop: Shop) -> None:
    enter(shop, "list")
    # Without scripts the button sends the form, which the server refuses.
    shop.page.evaluate("document.querySelector('#choose-form').submit()")
    shop.page.locator(".notice--wrong").wait_for()


@STATES.add(tablet=True)
def best_available(shop: Shop) -> None:
    enter(shop, "best&best_quantity=4")
    shop.page.locator(".seat-offer").first.wait_for()


@STATES.add()
def best_available_without_offers(shop: Shop) -> None:
    enter(shop, "best&best_quantity=8&best_wheelchairs=8")


@STATES.add()
def best_available_with_wrong_party(shop: Shop) -> None:
    enter(shop, "best&best_quantity=none")


@STATES.add(tablet=True)
def unreserved(shop: Shop) -> None:
    enter(shop, "quantity")


@STATES.add()
def unreserved_refused(shop: Shop) -> None:
    enter(shop, "quantity")
    shop.page.locator("[name=ga_section]").first.check(force=True)
    shop.page.locator("#ga_quantity").evaluate("field => { field.removeAttribute('max'); field.value = 999 }")
    shop.press("#choose-form button[type=submit]")
    shop.page.locator(".notice--wrong").wait_for()


@STATES.add()
def access_code_required(shop: Shop) -> None:
    event = make_event("guarded", general_admission=20, needs_access=("floor",))
    make_access_code(event, "floor")
    shop.join(event)
    shop.open("/events/guarded/choose?view=quantity")


@STATES.add()
def access_code_wrong(shop: Shop) -> None:
    shop.join(events.get_event("guarded"))
    shop.open("/events/guarded/choose?view=list")
    shop.page.locator("#access_code").fill("wrong")
    shop.press("[name=use_code]")
    shop.page.locator(".notice--wrong").wait_for()


@STATES.add()
def access_code_accepted(shop: Shop) -> None:
    shop.join(events.get_event("guarded"))
    shop.open("/events/guarded/choose?view=list")
    shop.page.locator("#access_code").fill("fanclub")
    shop.press("[name=use_code]")
    shop.page.locator(".access__opened").wait_for()


@STATES.add()
def purchase_cap_reached(shop: Shop) -> None:
    event = make_event("capped", per_buyer_max=2)
    held = shop.hold(event, seats=["hall-A-1", "hall-A-2"])
    in_another_connection(lambda: place_order(held))
    deliver_everything()
    shop.join(event)
    shop.open("/events/capped/choose?view=list")
    shop.page.locator(".notice").first.wait_for()


@STATES.add()
def nothing_left(shop: Shop) -> None:
    event = make_event("nothing-left", rows=0, general_admission=1)
    hold(event, ga_section="floor", ga_quantity=1)
    shop.join(event)
    shop.open("/events/nothing-left/choose")


@STATES.add()
def time_to_choose(shop: Shop) -> None:
    shop.join(make_room("roomy", general_admission=20))
    shop.open("/events/roomy/choose?view=list")
    shop.page.locator(".timer").wait_for()


@STATES.add(tablet=True)
def reserved(shop: Shop) -> None:
    shop.hold(events.get_event("seated"), seats=["hall-D-1", "hall-D-2"])


@STATES.add()
def reserved_tickets(shop: Shop) -> None:
    shop.hold(events.get_event("seated"), ga_section="floor", ga_quantity=2)


@STATES.add()
def reserved_seats_being_changed(shop: Shop) -> None:
    shop.hold(events.get_event("seated"), seats=["hall-D-3", "hall-D-4"])
    shop.open("/events/seated/choose?view=list&change=1")


def hold_ending_in(shop: Shop, seconds: int, *seats: str) -> reservations.ReservationView:
    held = shop.hold(events.get_event("seated"), seats=list(seats))
    Reservation.objects.filter(pk=held.id).update(expires_at=clock.now() + timedelta(seconds=seconds))
    return held


@STATES.add()
def two_minutes_left(shop: Shop) -> None:
    held = hold_ending_in(shop, 115, "hall-D-5")
    shop.open(f"/reservations/{held.id}/")


@STATES.add()
def thirty_seconds_left(shop: Shop) -> None:
    held = hold_ending_in(shop, 29, "hall-D-6")
    shop.open(f"/reservations/{held.id}/")


@STATES.add()
def bar(shop: Shop) -> None:
    shop.hold(events.get_event("seated"), seats=["hall-D-7"])
    shop.open("/")
    shop.page.locator(".hold-bar").wait_for()


@STATES.add()
def bar_with_two_minutes_left(shop: Shop) -> None:
    hold_ending_in(shop, 115, "hall-D-8")
    shop.open("/")
    shop.page.locator(".hold-bar.is-soon").wait_for()


@STATES.add()
def bar_with_thirty_seconds_left(shop: Shop) -> None:
    hold_ending_in(shop, 29, "hall-D-9")
    shop.open("/")
    shop.page.locator(".hold-bar.is-urgent").wait_for()


@STATES.add()
def bar_of_an_expired_hold(shop: Shop) -> None:
    held = hold_ending_in(shop, 60, "hall-D-10")
    expire(held)
    shop.open("/")
    shop.page.locator(".hold-bar--expired").wait_for()


@STATES.add()
def bar_of_a_payment(shop: Shop) -> None:
    held = shop.hold(events.get_event("seated"), seats=["hall-E-3"])
    in_another_connection(lambda: place_order(held))
    shop.open("/")
    shop.page.locator(".hold-bar--paying").wait_for()


def expire(held: reservations.ReservationView) -> None:
    backdate_deadline(held.id)
    in_another_connection(lambda: reservations.sweep(event_id=held.event_id, by="test"))


@STATES.add()
def time_up_and_seats_still_free(shop: Shop) -> None:
    held = shop.hold(events.get_event("seated"), seats=["hall-E-5", "hall-E-6"])
    expire(held)
    shop.open(f"/reservations/{held.id}/")
    shop.page.locator(".equivalent").wait_for()


@STATES.add()
def time_up_with_nearest_equivalent(shop: Shop) -> None:
    event = events.get_event("seated")
    held = shop.hold(event, seats=["hall-E-5", "hall-E-6"])
    expire(held)
    in_another_connection(lambda: hold(event, seats=["hall-E-5"]))
    shop.open(f"/reservations/{held.id}/")
    shop.page.locator(".equivalent").wait_for()


@STATES.add()
def time_up_in_a_room(shop: Shop) -> None:
    event = make_room("time-up", general_admission=20, active=1)
    held = shop.hold(event, ga_section="floor", ga_quantity=2)
    expire(held)
    shop.open(f"/reservations/{held.id}/")


@STATES.add()
def time_up_without_equivalent(shop: Shop) -> None:
    event = make_event("time-up-sold", rows=0, general_admission=2)
    held = shop.hold(event, ga_section="floor", ga_quantity=2)
    expire(held)
    in_another_connection(lambda: hold(event, ga_section="floor", ga_quantity=1))
    shop.open(f"/reservations/{held.id}/")


@STATES.add()
def time_up_after_the_sale(shop: Shop) -> None:
    event = make_event("time-up-over", rows=0, general_admission=2)
    held = shop.hold(event, ga_section="floor", ga_quantity=2)
    expire(held)
    OnSale.objects.filter(event_id=event.id).update(closes_at=clock.now() - timedelta(seconds=1))
    shop.open(f"/reservations/{held.id}/")


@STATES.add()
def released(shop: Shop) -> None:
    held = shop.hold(events.get_event("seated"), seats=["hall-E-8"])
    shop.post(f"/reservations/{held.id}/release")
    shop.open(f"/reservations/{held.id}/")


@STATES.add()
def payment_of_the_reservation(shop: Shop) -> None:
    held = shop.hold(events.get_event("seated"), seats=["hall-E-9"])
    in_another_connection(lambda: place_order(held))
    shop.open(f"/reservations/{held.id}/")


@STATES.add()
def reservation_paid(shop: Shop) -> None:
    order = shop.order(events.get_event("seated"))
    shop.open(f"/reservations/{order.reservation_id}/")


@STATES.add()
def no_reserved_seats(shop: Shop) -> None:
    shop.open("/reservations/")


@STATES.add()
def reserved_seats_of_two_events(shop: Shop) -> None:
    shop.hold(events.get_event("seated"), ga_section="floor", ga_quantity=1)
    held = shop.hold(make_event("second", general_admission=5), ga_section="floor", ga_quantity=1)
    shop.hold(make_event("third", general_admission=5), ga_section="floor", ga_quantity=1)
    expire(held)
    shop.open("/reservations/")
