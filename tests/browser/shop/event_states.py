"""States of the catalog, of an event's pages, of the organizer's pages, and of the site's own pages."""

from datetime import timedelta
from typing import Any

from django.core.mail import EmailMultiAlternatives
from django.db import transaction
from django.urls import reverse

from apps.accounts.models import User
from apps.events import facade as events
from apps.events.announcements import service
from apps.events.creation import create_event
from apps.events.models import Event, Organizer
from apps.events.organizers import legal_pages
from apps.events.pricing import PricePolicy
from apps.events.registries import ReturnTerms
from apps.events.revisions.service import change_event
from apps.kernel import clock
from apps.orders.cancellation import event_cancellation
from apps.orders.reports import publication
from tests.browser.shop.shop import Shop, States
from tests.support.events.factories import spec
from tests.support.factories import close_sales, hold, make_event, make_organizer
from tests.support.orders.reported_sale import make_finished_sale, publish
from tests.support.queue.lobbies import make_lobby
from tests.support.queue.sign_ups import close_sign_up, make_draw
from tests.support.races import in_another_connection
from ticketing.devserver.mail_backends import MailboxBackend

STATES = States()
TEXT = "Tickets are personal.\n\nReturns: see https://example.org/a/long/address/without/any/place/to/break.\n"


def upcoming(slug: str, **changes: Any) -> events.EventView:
    return make_event(slug, opens_at=clock.now() + timedelta(days=3), **changes)


def publish_legal_pages(slug: str) -> None:
    with transaction.atomic():
        for kind in legal_pages.KINDS:
            legal_pages.publish_page(Organizer.objects.get(slug=slug), kind, text=TEXT * 3, url="", who="test")


@STATES.add()
def catalog_without_events(shop: Shop) -> None:
    assert not Event.objects.exists(), "the first state"
    shop.open("/")


@STATES.add(tablet=True)
def catalog(shop: Shop) -> None:
    make_event("on-sale", city="Chicago")
    make_event("nearly-sold-out", rows=0, general_admission=20)
    hold(events.get_event("nearly-sold-out"), ga_section="floor", ga_quantity=8)
    hold(events.get_event("nearly-sold-out"), ga_section="floor", ga_quantity=8)
    hold(make_event("sold-out", rows=0, general_admission=1), ga_section="floor", ga_quantity=1)
    upcoming("upcoming")
    make_event("free", price_minor=0)
    make_event("closed")
    close_sales("closed")
    event_cancellation.begin(make_event("canceled").id, "The band is ill.", "test")
    shop.open("/?with=events")  # The browser keeps the page without events for a minute.
    shop.page.locator(".event-card--canceled").wait_for()


@STATES.add()
def catalog_search_without_result(shop: Shop) -> None:
    shop.open("/?q=nothing+has+this+name")


@STATES.add()
def recent_searches_none(shop: Shop) -> None:
    shop.open("/searches/")


@STATES.add()
def event_before_its_sale(shop: Shop) -> None:
    upcoming("early")
    shop.open("/events/early/")


@STATES.add()
def event_before_its_lobby(shop: Shop) -> None:
    opens_at = clock.now() + timedelta(hours=3)
    room = events.WaitingRoomSettings(rate_per_second=10, active_max=3, lobby_opens_at=opens_at - timedelta(hours=1))
    make_event("before-lobby", room=room, opens_at=opens_at)
    shop.open("/events/before-lobby/")


@STATES.add()
def event_with_open_lobby(shop: Shop) -> None:
    make_lobby("open-lobby", 3)
    shop.open("/events/open-lobby/")


@STATES.add()
def event_with_sign_up_for_a_draw(shop: Shop) -> None:
    make_draw("draw")
    shop.open("/events/draw/")


@STATES.add()
def event_after_the_sign_up(shop: Shop) -> None:
    close_sign_up(make_draw("signed-up"))
    shop.open("/events/signed-up/")


@STATES.add()
def event_in_presale_with_code(shop: Shop) -> None:
    make_event("code-presale", presale=events.Presale("code", clock.now() + timedelta(hours=1)))
    shop.open("/events/code-presale/")


@STATES.add()
def event_in_presale_with_account(shop: Shop) -> None:
    make_event("account-presale", presale=events.Presale("account", clock.now() + timedelta(hours=1)))
    shop.open("/events/account-presale/")


@STATES.add(tablet=True)
def event_on_sale(shop: Shop) -> None:
    """With everything that an event's page can show."""
    organizer = make_organizer("opera", "The Opera of the Long Names")
    Organizer.objects.filter(pk=organizer.pk).update(contact_email="help@opera.example")
    publish_legal_pages("opera")
    starts_at = clock.now() + timedelta(days=30)
    event = make_event(
        "gala",
        organizer="opera",
        venue="Opera House",
        address="1 Breakwater Drive",
        city="Chicago",
        coordinates=(41.88, -87.62),
        timezone="America/Chicago",
        starts_at=starts_at,
        doors_at=starts_at - timedelta(hours=1),
        ends_at=starts_at + timedelta(hours=3),
        description="A gala.\n\nWith singers.",
        general_admission=40,
        needs_access=("floor",),
        per_buyer_max=10,
        returns=ReturnTerms(until_hours=24),
        price_policy=PricePolicy(ticket_fee_minor=150, order_fee_minor=100, tax_rate=1000, tax_included=False),
        tiers={"Gold": 9_000},
        tier_of={"hall-A": "Gold"},
    )
    service.post(event.id, "Doors open at seven.", author="ann")
    shop.open("/events/gala/")


@STATES.add()
def event_with_many_sections(shop: Shop) -> None:
    make_event("arena", rows=1, seats_per_row=2, halls=tuple(f"Block{number}" for number in range(14)))
    shop.open("/events/arena/")


@STATES.add()
def event_nearly_sold_out(shop: Shop) -> None:
    shop.open("/events/nearly-sold-out/")


@STATES.add()
def event_sold_out(shop: Shop) -> None:
    shop.open("/events/sold-out/")


@STATES.add()
def event_closed(shop: Shop) -> None:
    shop.open("/events/closed/")


@STATES.add()
def event_canceled(shop: Shop) -> None:
    shop.open("/events/canceled/")


@STATES.add()
def event_postponed(shop: Shop) -> None:
    event = make_event("postponed")
    later = {"starts_at": event.starts_at + timedelta(days=7), "doors_at": None, "ends_at": None}
    change_event(event.id, "schedule", later, who="test", why="ill", message="The band is ill.", return_days=14)
    shop.open("/events/postponed/")


@STATES.add(tablet=True)
def preview(shop: Shop) -> None:
    draft = create_event(spec("draft", draft=True)).event_id
    shop.log_in(User.objects.create_superuser("previewer", "previewer@example.org", "secret"))
    shop.open(reverse("admin:events_preview", args=[draft]))


@STATES.add()
def preview_of_the_map(shop: Shop) -> None:
    shop.log_in(User.objects.get(username="previewer"))
    shop.open(reverse("admin:events_preview_map", args=[Event.objects.get(slug="draft").pk]))
    shop.page.locator("[data-seat-map][data-ready]").wait_for()


@STATES.add()
def announcements(shop: Shop) -> None:
    shop.open("/events/gala/announcements/")


@STATES.add()
def no_announcements(shop: Shop) -> None:
    shop.open("/events/early/announcements/")


@STATES.add()
def terms(shop: Shop) -> None:
    shop.open("/organizers/opera/terms")


@STATES.add()
def privacy_notice(shop: Shop) -> None:
    shop.open("/organizers/opera/privacy")


@STATES.add()
def imprint(shop: Shop) -> None:
    shop.open("/organizers/opera/imprint")


@STATES.add()
def report(shop: Shop) -> None:
    shop.patches.setattr(publication, "COMPLETE_AFTER", timedelta(0))
    in_another_connection(lambda: publish(make_finished_sale("reported")))
    shop.open("/events/reported/report")
    shop.page.locator("details summary").first.click()


@STATES.add()
def api_reference(shop: Shop) -> None:
    shop.open("/api/docs")
    shop.page.locator("details.call").last.wait_for()
    # Some of each kind: all of them together would take minutes.
    shop.page.evaluate(
        "document.querySelectorAll('details.call:nth-of-type(9n + 1)').forEach((call) => (call.open = true))"
    )


@STATES.add()
def empty_mailbox(shop: Shop) -> None:
    shop.settings.MAILBOX_FOLDER = str(shop.folder)
    shop.open("/demo/mailbox")


@STATES.add()
def mailbox(shop: Shop) -> None:
    message = EmailMultiAlternatives("Your tickets", "See https://example.org/.", "shop@example.org", ["a@example.org"])
    message.attach_alternative("<p>Your tickets</p>", "text/html")
    message.attach("tickets.pdf", b"%PDF", "application/pdf")
    MailboxBackend().send_messages([message])
    shop.open("/demo/mailbox")


@STATES.add()
def mailbox_without_result(shop: Shop) -> None:
    shop.open("/demo/mailbox?to=another")


@STATES.add()
def mail(shop: Shop) -> None:
    shop.open("/demo/mailbox")
    shop.press(".mails a")
