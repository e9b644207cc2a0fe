"""`manage.py create_event`: create and publish one event; repeating the command changes nothing."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from apps.events.creation import EventSpec, GeneralAdmission, Outcome, create_event, plan_limits
from apps.events.event_views import Presale, WaitingRoomSettings
from apps.events.models import OnSale, Venue
from apps.events.plans import PlanError, read_file
from apps.events.pricing import PricePolicy
from apps.events.publication import EventRefused
from apps.events.registries import ReturnTerms
from apps.kernel.cli import report_errors_in_one_line, whole_number


class Command(BaseCommand):
    help = (
        "Creates and publishes one event. Repeated with the same values it changes nothing; with other values it lists "
        "the differences and exits with 1. Times without an offset are venue local time."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        report_errors_in_one_line(parser)
        add = parser.add_argument
        add("slug", metavar="SLUG", help="the event's id in URLs: lower-case letters, digits, hyphens")
        add("--name", required=True)
        add("--venue", required=True, metavar="NAME", help="reused if it exists, created otherwise")
        add("--organizer", default="", metavar="SLUG", help="an existing organizer; default: the default organizer")
        add("--city", default="", help="of a new venue")
        add("--address", default="", help="of a new venue: street and number, shown with a link to a map")
        add("--coordinates", metavar="LAT,LON", help="of a new venue, in degrees; default: the map searches")
        add("--timezone", default="", metavar="IANA", help="of a new venue, as in Europe/Berlin; needed for one")
        add("--starts", required=True, metavar="ISO", help="as in 2027-05-01T20:00+02:00")
        add("--doors", metavar="ISO", help="when people are let in; default: not announced")
        add("--ends", metavar="ISO", help="the expected end, for calendars; default: not announced")
        add("--plan", metavar="FILE", help="seating plan: pretix JSON or CSV")
        add("--price", action="append", default=[], metavar="CATEGORY:MINOR", help="in the currency's smallest unit")
        add("--general-admission", action="append", default=[], metavar="NAME:CAPACITY:MINOR")
        add("--currency", required=True, metavar="CODE", help="ISO 4217, as in USD")
        add("--on-sale", default="now", metavar="now|ISO", help="default: now")
        add("--on-sale-ends", metavar="ISO", help="default: when the event starts")
        add("--per-buyer", metavar="N", help="most seats that one buyer may have; default: no limit")
        add("--hold-seconds", metavar="N", help="time to pay after a hold, from 30 on; default: 600")
        add("--hold-minutes", metavar="N", help="the same in minutes")
        add("--payment-seconds", default="180", metavar="N", help="longest time that a payment may take; default: 180")
        add("--seats-per-reservation", default="8", metavar="N", help="default: 8")
        add("--description", default="")
        add("--summary", default="", help="one sentence, for the catalog and its search")
        add("--performer", action="append", default=[], metavar="NAME", help="may be repeated")
        add("--tag", action="append", default=[], metavar="WORD", help="for the search; may be repeated")
        add("--language", default="en", metavar="CODE", help="of the texts, as in de; default: en")
        add(
            "--waiting-room",
            default="off",
            metavar="off|rate=N,active=N[,lobby=ISO]",
            help="visitors admitted per second and shopping at once; with a lobby, visitors gather from that time on, "
            "and a draw numbers them at the opening; default: off",
        )
        add(
            "--presale",
            default="none",
            metavar="none|code=ISO|account=ISO|sign_up=ISO,closes=ISO",
            help="until that time only visitors with an access code of the event, or with a confirmed account, or who "
            "signed up for the lobby's draw before it closed, may join and hold; default: none",
        )
        add(
            "--fees",
            default="none",
            metavar="none|ticket=MINOR,rate=BP,order=MINOR,on-free=yes",
            help="per ticket, in the currency's smallest unit and in basis points of its price, and once per order; on "
            "free tickets only with on-free; each part is optional; default: none",
        )
        add(
            "--tax",
            default="none",
            metavar="none|included=BP|added=BP",
            help="basis points, included in prices and fees or added to them; default: none",
        )
        add(
            "--needs-access",
            action="append",
            default=[],
            metavar="SECTION",
            help="the id of a section whose holds need an access code; may be repeated",
        )
        add(
            "--category-tax",
            action="append",
            default=[],
            metavar="CATEGORY:BP",
            help="basis points for a category, or for general admission by its name, if they differ from --tax",
        )
        add(
            "--returns",
            default="none",
            metavar="none|until=HOURS[,fees=kept|refunded]",
            help="buyers may return tickets until so many hours before the start; by default fees are kept; "
            "default: none",
        )
        add("--report", action="store_true", help="allow a public report after the sale; see manage.py sale_report")
        add("--draft", action="store_true", help="do not publish; repeat the command without it to publish")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            spec = _spec(options)
            if not spec.timezone and spec.venue.isprintable() and not Venue.objects.filter(name=spec.venue).exists():
                # Without it, all times of its events would be shown in UTC.
                raise CommandError(f"--timezone is needed for the new venue “{spec.venue[:80]}”, as in Europe/Berlin")
            created = create_event(spec)
        except PlanError as error:
            raise CommandError(f"{options['plan']}: {error}") from error
        except EventRefused as error:
            raise CommandError(str(error)) from error
        for note in created.notes:
            self.stderr.write(f"{options['plan']}: {note}")
        address = f"{settings.SITE_URL}{reverse('events:event', args=[spec.slug])}"
        messages = {
            Outcome.PUBLISHED: f"{spec.slug}: published, {address}",
            Outcome.DRAFTED: f"{spec.slug}: created as a draft; repeat the command without --draft to publish it",
            Outcome.UNCHANGED: f"{spec.slug}: already exists with these values; nothing changed",
        }
        self.stdout.write(messages[created.outcome])


def _spec(options: dict[str, Any]) -> EventSpec:
    on_sale = options["on_sale"]
    return EventSpec(
        slug=options["slug"],
        name=options["name"],
        venue=options["venue"],
        city=options["city"],
        address=options["address"],
        coordinates=_coordinates(options["coordinates"]),
        timezone=options["timezone"],
        doors_at=None if options["doors"] is None else _moment(options["doors"], "--doors"),
        starts_at=_moment(options["starts"], "--starts"),
        ends_at=None if options["ends"] is None else _moment(options["ends"], "--ends"),
        currency=options["currency"],
        plan=read_file(Path(options["plan"]), plan_limits()) if options["plan"] is not None else None,
        plan_name=Path(options["plan"] or "").stem[:200],
        prices=_prices(options["price"]),
        general_admission=tuple(_general_admission(value) for value in options["general_admission"]),
        opens_at=None if on_sale == "now" else _moment(on_sale, "--on-sale"),
        closes_at=None if options["on_sale_ends"] is None else _moment(options["on_sale_ends"], "--on-sale-ends"),
        hold_seconds=_hold_seconds(options["hold_seconds"], options["hold_minutes"]),
        payment_seconds=whole_number(options["payment_seconds"], "--payment-seconds"),
        seats_per_reservation_max=whole_number(options["seats_per_reservation"], "--seats-per-reservation"),
        per_buyer_max=None if options["per_buyer"] is None else whole_number(options["per_buyer"], "--per-buyer"),
        room=_room(options["waiting_room"]),
        presale=_presale(options["presale"]),
        price_policy=_price_policy(options["fees"], options["tax"]),
        tax_rates=_tax_rates(options["category_tax"]),
        needs_access=tuple(dict.fromkeys(options["needs_access"])),
        description=options["description"],
        summary=options["summary"],
        performers=tuple(dict.fromkeys(options["performer"])),
        tags=tuple(dict.fromkeys(options["tag"])),
        language=options["language"],
        returns=_returns(options["returns"]),
        publishes_report=options["report"],
        organizer=options["organizer"],
        draft=options["draft"],
    )


def _hold_seconds(seconds: str | None, minutes: str | None) -> int:
    if seconds is not None and minutes is not None:
        raise CommandError("give --hold-seconds or --hold-minutes, not both")
    if minutes is not None:
        return whole_number(minutes, "--hold-minutes") * 60
    return 600 if seconds is None else whole_number(seconds, "--hold-seconds")


def _presale(value: str) -> Presale | None:
    if value == "none":
        return None
    first, has_end, closes = value.partition(",closes=")
    condition, _, until = first.partition("=")
    if condition not in OnSale.Presale.values:
        raise CommandError(
            f"--presale {value[:80]!r} must be none, code=ISO, account=ISO or sign_up=ISO,closes=ISO, "
            "as in code=2027-05-01T12:00+02:00"
        )
    return Presale(condition, _moment(until, "--presale"), _moment(closes, "--presale closes") if has_end else None)


def _coordinates(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    found = re.fullmatch(r"\s*(-?\d{1,2}(?:\.\d{1,9})?)\s*,\s*(-?\d{1,3}(?:\.\d{1,9})?)\s*", text, re.ASCII)
    latitude, longitude = (float(found[1]), float(found[2])) if found else (91.0, 0.0)
    if abs(latitude) > 90 or abs(longitude) > 180:
        raise CommandError(f"--coordinates {text[:80]!r} is not LAT,LON in degrees, as in 51.5079,-0.0877")
    return latitude, longitude


def _moment(value: str, option: str) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except ValueError as error:
        raise CommandError(f"{option} {value[:80]!r} is not an ISO 8601 time such as 2027-05-01T20:00+02:00") from error


def _room(value: str) -> WaitingRoomSettings | None:
    if value == "off":
        return None
    parts = [part.strip().partition("=") for part in value.split(",")]
    given = {name: text for name, _, text in parts}
    if len(parts) != len(given) or given.keys() - {"lobby"} != {"rate", "active"}:
        raise CommandError(
            f"--waiting-room {value[:80]!r} must be off or rate=N,active=N, as in rate=50,active=500, "
            "optionally with lobby=ISO"
        )
    return WaitingRoomSettings(
        whole_number(given["rate"], "--waiting-room rate"),
        whole_number(given["active"], "--waiting-room active"),
        _moment(given["lobby"], "--waiting-room lobby") if "lobby" in given else None,
    )


def _returns(value: str) -> ReturnTerms | None:
    if value == "none":
        return None
    parts = [part.strip().partition("=") for part in value.split(",")]
    given = {name: text for name, _, text in parts}
    if len(parts) != len(given) or given.keys() - {"fees"} != {"until"}:
        raise CommandError(f"--returns {value[:80]!r} must be none or until=HOURS, as in until=48,fees=kept")
    if given.get("fees", "kept") not in ("kept", "refunded"):
        raise CommandError(f"--returns fees={given['fees'][:80]!r} must be kept or refunded")
    return ReturnTerms(whole_number(given["until"], "--returns until"), given.get("fees", "kept") == "kept")


def _tax_rates(values: list[str]) -> dict[str, int]:
    rates = {}
    for value in values:
        name, colon, rate = value.rpartition(":")
        if not colon or not name:
            raise CommandError(f"--category-tax {value[:80]!r} must be CATEGORY:BP, as in Program:700")
        rates[name] = whole_number(rate, f"--category-tax {name[:80]!r}:")
    return rates


def _price_policy(fees: str, tax: str) -> PricePolicy:
    parts = [] if fees == "none" else [part.strip().partition("=") for part in fees.split(",")]
    given = {name: text for name, _, text in parts}
    if len(parts) != len(given) or given.keys() - {"ticket", "rate", "order", "on-free"}:
        raise CommandError(f"--fees {fees[:80]!r} must be none or such as ticket=250,rate=500,order=100")
    if given.get("on-free", "no") not in ("yes", "no"):
        raise CommandError(f"--fees on-free={given['on-free'][:80]!r} must be yes or no")
    kind, _, rate = tax.partition("=")
    if tax != "none" and kind not in ("included", "added"):
        raise CommandError(f"--tax {tax[:80]!r} must be none, included=BP or added=BP, as in included=1900")
    return PricePolicy(
        ticket_fee_minor=whole_number(given.get("ticket", "0"), "--fees ticket"),
        ticket_fee_rate=whole_number(given.get("rate", "0"), "--fees rate"),
        order_fee_minor=whole_number(given.get("order", "0"), "--fees order"),
        waives_fees_when_free=given.get("on-free", "no") == "no",
        tax_rate=0 if tax == "none" else whole_number(rate, f"--tax {kind}"),
        tax_included=kind != "added",
    )


def _prices(values: list[str]) -> dict[str, int]:
    prices: dict[str, int] = {}
    for value in values:
        category, colon, minor = value.rpartition(":")
        category = category.strip()
        if not colon or not category:
            raise CommandError(f"--price {value[:80]!r} must be CATEGORY:MINOR, as in Stalls:4500")
        if category in prices:
            raise CommandError(f"--price names “{category[:80]}” twice")
        prices[category] = whole_number(minor, f"--price {category[:80]!r}:")
    return prices


def _general_admission(value: str) -> GeneralAdmission:
    parts = value.rsplit(":", 2)
    if len(parts) != 3 or not parts[0].strip():
        raise CommandError(f"--general-admission {value[:80]!r} must be NAME:CAPACITY:MINOR, as in Floor:2000:6500")
    name = parts[0].strip()
    option = f"--general-admission {name[:80]!r}:"
    return GeneralAdmission(name, whole_number(parts[1], option), whole_number(parts[2], option))
