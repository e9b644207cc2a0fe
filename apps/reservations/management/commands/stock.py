"""`manage.py stock EVENT …`: shows, blocks, unblocks, resizes and reprices the stock of an event."""

from argparse import ArgumentParser
from contextlib import nullcontext
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.events import facade as events
from apps.kernel.cli import add_event_actions, get_os_username, whole_number
from apps.kernel.formatting import format_money, format_utc
from apps.kernel.http import problems
from apps.reservations.models import BlockedFor, InventoryChange
from apps.reservations.staff import access_restrictions, stock, tiers
from apps.reservations.staff.refusals import recording_refusals
from apps.reservations.staff.selection import Selection
from apps.reservations.staff.stock_summary import latest_changes, read_section_stock

CHANGES_SHOWN = 10
MINOR = "a whole number, in the currency's smallest unit: 6500 cents, not 65.00"
_Kind = InventoryChange.Kind
KINDS = {
    "block": _Kind.BLOCKED,
    "unblock": _Kind.UNBLOCKED,
    "resize": _Kind.RESIZED,
    "reprice": _Kind.REPRICED,
    "add-price": _Kind.REPRICED,
    "guard": _Kind.GUARDED,
    "open": _Kind.OPENED,
    "move": _Kind.MOVED,
}
"""The recorded kind of each act that changes something."""
REASONS = {reason.value.replace("_", "-"): reason.value for reason in BlockedFor}


class Command(BaseCommand):
    help = (
        "Shows and changes an event's stock, also during its sale. Only free stock can be blocked or moved, all or "
        "nothing. Every change is recorded with operator, time and reason. A refused change prints one line, exits "
        "with status 1 and changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        act = add_event_actions(parser)

        def seats(added: ArgumentParser) -> None:
            added.add_argument("seats", nargs="*", metavar="SEAT", help="seats by id, such as stalls-A-1")
            added.add_argument(
                "--section", default="", metavar="ID", help="instead of seats: a whole section, or rows of it"
            )
            added.add_argument(
                "--row", action="append", default=[], metavar="ROW", help="only this row of the section; repeatable"
            )

        act("show", "print all sections and prices, and the latest changes", changes=False)
        block = act("block", "block free stock")
        seats(block)
        block.add_argument("--quantity", metavar="N", help="tickets of a general-admission --section to block")
        block.add_argument(
            "--for", dest="reason", required=True, choices=sorted(REASONS), help="the reason of the block"
        )
        block.add_argument("--only-free", action="store_true", help="skip held and sold seats")
        unblock = act("unblock", "put blocked stock on sale")
        seats(unblock)
        unblock.add_argument("--quantity", metavar="N", help="tickets of a general-admission --section to unblock")
        unblock.add_argument("--for", dest="reason", choices=sorted(REASONS), help="only stock blocked for this reason")
        resize = act("resize", "set a general-admission section's capacity")
        resize.add_argument("section", metavar="SECTION")
        resize.add_argument("capacity", metavar="N")
        reprice = act("reprice", "set the price of a category; existing holds keep theirs")
        reprice.add_argument("category", metavar="CATEGORY", help="the category's name in the plan, or the section's")
        reprice.add_argument("price", metavar="MINOR", help=MINOR)
        add_price = act("add-price", "add a price category, to which seats can be moved")
        add_price.add_argument("category", metavar="CATEGORY")
        add_price.add_argument("price", metavar="MINOR", help=MINOR)
        add_price.add_argument("--color", default="", metavar="#RRGGBB", help="its color on the map")
        for name, words in (
            ("guard", "require an access code for new holds in a section"),
            ("open", "open a section to all buyers"),
        ):
            act(name, words).add_argument("section", metavar="SECTION")
        move = act("move", "move free and blocked seats to another price category")
        seats(move)
        move.add_argument("--to", required=True, metavar="CATEGORY")

    def handle(self, *args: Any, **options: Any) -> None:
        event = events.get_event_for_command(options["event"])
        act = options["act"]
        by: dict[str, Any] = {"who": options.get("who") or get_os_username(), "why": options.get("why", "")}
        try:
            with recording_refusals(event.id, KINDS[act], _wanted(options), **by) if act in KINDS else nullcontext():
                self.stdout.write(self._act(event, options, by))
        except problems.Invalid as problem:
            errors = "; ".join(map(str, problem.extra["errors"].values()))
            raise CommandError(f"{event.slug}: {errors}") from problem
        except problems.Problem as problem:
            raise CommandError(f"{event.slug}: {problem.detail}") from problem

    def _act(self, event: events.EventView, options: dict[str, Any], by: dict[str, Any]) -> str:
        match options["act"]:
            case "block":
                return self._block(event, options, by)
            case "unblock":
                return self._unblock(event, options, by)
            case "resize":
                capacity = whole_number(options["capacity"], "the capacity")
                counts = stock.resize(event, options["section"], capacity, **by)
                return f"{event.slug}: {options['section']} has capacity {counts.capacity:,}, {counts.free:,} free"
            case "reprice":
                price = whole_number(options["price"], "MINOR (the price in the currency's smallest unit)")
                return f"{event.slug}: {_price_text(event, tiers.reprice(event, options['category'], price, **by))}"
            case "add-price":
                price = whole_number(options["price"], "MINOR (the price in the currency's smallest unit)")
                added = tiers.add_price(event, options["category"], price, color=options["color"], **by)
                return f"{event.slug}: {_price_text(event, added)}"
            case "guard" | "open":
                needs_access = options["act"] == "guard"
                is_new = access_restrictions.guard(event, options["section"], needs_access=needs_access, **by)
                state = "needs an access code" if needs_access else "is open to all buyers"
                return f"{event.slug}: {options['section']} {state}{'' if is_new else ', unchanged'}"
            case "move":
                moved = tiers.move_seats(event, _selection(options), options["to"], **by)
                to = options["to"]
                return f"{event.slug}: {moved:,} moved to {to}" if moved else f"{event.slug}: all are in {to} already"
        return _stock_table(event)

    def _block(self, event: events.EventView, options: dict[str, Any], by: dict[str, Any]) -> str:
        reason, words = REASONS[options["reason"]], BlockedFor(REASONS[options["reason"]]).label
        if options["quantity"] is None:
            only_free = options["only_free"]
            blocked = stock.block_seats(event, _selection(options), reason, only_free=only_free, **by)
            return f"{event.slug}: {blocked:,} now {words}" if blocked else f"{event.slug}: all were blocked already"
        section, quantity = _section_of(options), whole_number(options["quantity"], "--quantity")
        counts = stock.block_general_admission(event, section, quantity, reason, **by)
        return f"{event.slug}: {quantity:,} more {words}; {section} has {counts.free:,} free"

    def _unblock(self, event: events.EventView, options: dict[str, Any], by: dict[str, Any]) -> str:
        reason = REASONS[options["reason"]] if options["reason"] else ""
        if options["quantity"] is None:
            freed = stock.unblock_seats(event, _selection(options), reason=reason, **by)
            return f"{event.slug}: {freed:,} unblocked" if freed else f"{event.slug}: none was blocked"
        if not reason:
            raise CommandError("--quantity needs --for, the reason of the block")
        section, quantity = _section_of(options), whole_number(options["quantity"], "--quantity")
        counts = stock.unblock_general_admission(event, section, quantity, reason, **by)
        return f"{event.slug}: {quantity:,} unblocked; {section} has {counts.free:,} free"


def _wanted(options: dict[str, Any]) -> str:
    """Return what was asked for, to record it with a refusal."""
    names = ("section", "row", "seats", "quantity", "capacity", "category", "price", "reason", "to")
    return " ".join(f"{name}={str(options[name])[:60]}" for name in names if options.get(name))


def _selection(options: dict[str, Any]) -> Selection:
    return Selection(tuple(options["seats"]), options["section"], tuple(options["row"]))


def _section_of(options: dict[str, Any]) -> str:
    if options["seats"] or options["row"] or not options["section"] or options.get("only_free"):
        raise CommandError("--quantity needs one --section of general admission, and no seats or rows")
    return str(options["section"])


def _price_text(event: events.EventView, changed: events.PriceChange) -> str:
    now = f"{changed.category} costs {format_money(changed.after, event.currency)}"
    if changed.before == changed.after:
        return f"{now}, unchanged"
    return now if changed.before is None else f"{now}; it was {format_money(changed.before, event.currency)}"


def _stock_table(event: events.EventView) -> str:
    titles = ("section", "capacity", "free", "held", "sold", "house", "out of use")
    rows: list[tuple[str, ...]] = [titles]
    for one in read_section_stock(event.id):
        figures = (one.capacity, one.free, one.held, one.sold, one.house, one.out_of_use)
        name = f"{one.section.slug} (with code)" if one.section.needs_access else one.section.slug
        rows.append((name, *(f"{figure:,}" for figure in figures)))
    wide = [max(len(row[column]) for row in rows) for column in range(len(titles))]
    lines = [f"{event.name} ({event.slug})"]
    for name, *texts in rows:
        cells = "  ".join(text.rjust(width) for text, width in zip(texts, wide[1:], strict=True))
        lines.append(f"  {name.ljust(wide[0])}  {cells}")
    lines += [
        f"  price  {tier.key}: {format_money(tier.price_minor, event.currency)} ({tier.price_minor})"
        for tier in events.list_categories(event.id)
    ]
    for change in latest_changes(event, CHANGES_SHOWN):
        why = f" ({change.why})" if change.why else ""
        lines.append(f"  {format_utc(change.at)} UTC  {change.who}: {change.words}{why}")
    return "\n".join(lines)
