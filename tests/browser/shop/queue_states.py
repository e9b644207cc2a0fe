"""States of the pages before, in and after a line."""

from datetime import timedelta
from typing import Any

from django.test import Client

from apps.events import facade as events
from apps.kernel import clock
from apps.queue import facade as queue
from apps.queue.entries import vip_links
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room import operations
from tests.browser.shop.shop import Shop, States
from tests.support.factories import close_sales, join, make_access_code, make_event
from tests.support.orders.sale import SAME_ORIGIN
from tests.support.queue.lobbies import close_lobby, make_lobby
from tests.support.queue.proven_rooms import drawn_room
from tests.support.queue.rooms import backdate_admissions, complete_admission, make_room, open_now
from tests.support.races import in_another_connection

STATES = States()


def full_room(slug: str, **changes: Any) -> events.EventView:
    """Return an event in whose room one visitor shops and another waits."""
    event = make_room(slug, active=1, general_admission=20, **changes)
    join(event)
    join(event)
    return event


def set_state(event: events.EventView, state: str) -> None:
    WaitingRoom.objects.filter(event_id=event.id).update(state=state)


def change(entry: queue.EntryView, **values: Any) -> None:
    QueueEntry.objects.filter(pk=entry.id).update(**values)


@STATES.add()
def presale_asks_for_a_code(shop: Shop) -> None:
    make_access_code(make_event("presale", presale=events.Presale("code", clock.now() + timedelta(hours=1))))
    shop.open("/events/presale/")
    shop.press("[data-join] button")


@STATES.add()
def presale_refuses_a_code(shop: Shop) -> None:
    presale_again(shop)
    shop.page.locator("#access_code").fill("wrong")
    shop.press("main [data-join] button")
    shop.page.locator("#access_code_error").wait_for()


def presale_again(shop: Shop) -> None:
    shop.open("/events/presale/")
    shop.press("[data-join] button")


@STATES.add()
def presale_asks_for_an_account(shop: Shop) -> None:
    make_event("members", presale=events.Presale("account", clock.now() + timedelta(hours=1)))
    shop.open("/events/members/")
    shop.press("[data-join] button")


@STATES.add()
def puzzle(shop: Shop) -> None:
    shop.settings.PROOF_OF_WORK_STEPS, shop.settings.PROOF_OF_WORK_DELAY_SECONDS = 30, 60
    WaitingRoom.objects.filter(event_id=make_room("puzzle", general_admission=20).id).update(screening="on")
    shop.open("/events/puzzle/")
    shop.page.route("**/js/work.js", lambda route: route.abort())  # The script would solve it and go on.
    shop.press("[data-join] button")
    shop.page.locator("[data-work]").wait_for()
    shop.page.unroute("**/js/work.js")


@STATES.add()
def wait_instead_of_the_puzzle(shop: Shop) -> None:
    puzzle_again(shop)
    shop.page.locator("meta[http-equiv=refresh]").wait_for(state="attached")


@STATES.add()
def end_of_the_wait_instead_of_the_puzzle(shop: Shop) -> None:
    shop.settings.PROOF_OF_WORK_DELAY_SECONDS = 0
    puzzle_again(shop)
    shop.page.locator("main form button").wait_for()


def puzzle_again(shop: Shop) -> None:
    shop.post("/events/puzzle/join")  # Gives the browser its identity.
    shop.open("/events/puzzle/join?delay=")


@STATES.add()
def lobby(shop: Shop) -> None:
    event, _ = make_lobby("lobby", 3)
    shop.join(event)
    shop.open("/events/lobby/wait")


@STATES.add()
def drawing(shop: Shop) -> None:
    event, _ = make_lobby("drawing", 3)
    shop.join(event)
    close_lobby(event)
    shop.open("/events/drawing/wait")


@STATES.add(tablet=True)
def in_line(shop: Shop) -> None:
    event = full_room("in-line")
    shop.join(event)
    operations.set_message(event.id, "Sales go on after the break.", who="test")
    operations.report_supplies({event.id: (12, 3)})
    shop.open("/events/in-line/wait")
    shop.page.locator("[data-line-leave] summary").click()


@STATES.add()
def next_in_line(shop: Shop) -> None:
    event = make_room("next-in-line", active=1, general_admission=20)
    join(event)
    shop.join(event)
    shop.open("/events/next-in-line/wait")


@STATES.add()
def paused(shop: Shop) -> None:
    event = full_room("paused")
    shop.join(event)
    set_state(event, "paused")
    shop.open("/events/paused/wait")


@STATES.add()
def in_review(shop: Shop) -> None:
    event = full_room("in-review")
    change(shop.join(event), status="review")
    shop.open("/events/in-review/wait")


@STATES.add()
def line_closed(shop: Shop) -> None:
    event = full_room("line-closed")
    shop.join(event)
    set_state(event, "drained")
    operations.set_message(event.id, "See you next year.", who="test")
    shop.open("/events/line-closed/wait")


@STATES.add()
def sold_out_in_line(shop: Shop) -> None:
    event = full_room("sold-out-in-line")
    shop.join(event)
    operations.report_supplies({event.id: (0, 0)})
    set_state(event, "drained")
    shop.open("/events/sold-out-in-line/wait")


@STATES.add()
def sales_ended_in_line(shop: Shop) -> None:
    event = full_room("ended-in-line")
    shop.join(event)
    close_sales("ended-in-line")
    set_state(event, "drained")
    shop.open("/events/ended-in-line/wait")


@STATES.add()
def removed(shop: Shop) -> None:
    event = full_room("removed")
    entry = shop.join(event)
    operations.remove(entry.id, who="test")
    shop.open("/events/removed/wait")


@STATES.add()
def left(shop: Shop) -> None:
    event = full_room("left")
    shop.join(event)
    shop.post("/events/left/leave")
    shop.open("/events/left/wait")


@STATES.add()
def turn_expired(shop: Shop) -> None:
    event = make_room("turn-expired", general_admission=20)
    backdate_admissions(shop.join(event))
    shop.open("/events/turn-expired/wait")


@STATES.add()
def turn_complete(shop: Shop) -> None:
    event = make_room("turn-complete", general_admission=20)
    complete_admission(shop.join(event).id)
    shop.open("/events/turn-complete/wait")


@STATES.add()
def not_in_line(shop: Shop) -> None:
    full_room("not-in-line")
    shop.open("/events/not-in-line/choose")


@STATES.add()
def turn_expired_while_choosing(shop: Shop) -> None:
    event = full_room("expired-choosing")
    entry = shop.join(event)
    in_another_connection(lambda: operations.let_through(entry.id, who="test"))
    set_state(event, "open")
    change(entry, status="expired", ended_at=clock.now())
    shop.open("/events/expired-choosing/choose", 410)


@STATES.add()
def not_admitted_without_a_room(shop: Shop) -> None:
    make_event("no-room", general_admission=20)
    shop.open("/events/no-room/choose")


@STATES.add()
def cookies_blocked(shop: Shop) -> None:
    shop.open("/events/no-room/")
    shop.page.evaluate(
        """() => {
            const form = document.querySelector("[data-join]");
            form.action += "?again=1";
            form.submit();
        }"""
    )
    shop.page.locator(".problem").wait_for()


def vip_link(slug: str) -> tuple[events.EventView, str, Any]:
    event = full_room(slug)
    open_now(event)
    link = vip_links.make_link(event.id, note="The band", who="test")
    path = vip_links.address_of(link, slug).partition("/events/")[2]
    return event, f"/events/{path}", link


@STATES.add()
def vip_link_open(shop: Shop) -> None:
    _, path, _ = vip_link("vip")
    shop.open(path)


@STATES.add()
def vip_link_used(shop: Shop) -> None:
    _, path, _ = vip_link("vip-used")
    client = Client()
    client.post(path, headers=SAME_ORIGIN, follow=True)
    shop.open(path, 410)


@STATES.add()
def vip_link_used_by_this_visitor(shop: Shop) -> None:
    _, path, _ = vip_link("vip-mine")
    shop.post(path)
    shop.open(path)


@STATES.add()
def vip_link_revoked(shop: Shop) -> None:
    _, path, link = vip_link("vip-revoked")
    vip_links.revoke_link(link.pk, who="test")
    shop.open(path, 410)


@STATES.add()
def vip_link_damaged(shop: Shop) -> None:
    shop.open("/events/vip/vip/damaged", 404)


@STATES.add(tablet=True)
def fairness_of_a_line(shop: Shop) -> None:
    full_room("plain-line")
    shop.open("/events/plain-line/fairness")


@STATES.add()
def fairness_before_a_draw(shop: Shop) -> None:
    shop.open("/events/lobby/fairness")


@STATES.add()
def fairness_of_a_draw(shop: Shop) -> None:
    drawn_room("drawn", beacon=True)
    shop.open("/events/drawn/fairness")
    for summary in shop.page.locator("main summary").all():
        summary.click()
    shop.page.locator("[data-fair-go]").click()
    shop.page.locator("[data-fair-result]:not([hidden])").wait_for()
