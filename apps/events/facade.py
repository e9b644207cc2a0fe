"""The interface of the events app for the apps above: ids and frozen values, never model instances."""

from collections.abc import Mapping
from typing import Any

from apps.events import changes, pricing
from apps.events.admin_pages.inlines import add_event_inline
from apps.events.announcements import feed, queries, service, template_context
from apps.events.checklist.draft import Draft
from apps.events.checklist.registry import Finding, Level, on_check_draft
from apps.events.event_views import (
    EventNotFound,
    EventView,
    Policy,
    Presale,
    SeatView,
    SectionView,
    WaitingRoomSettings,
    cached_slug,
    events_call,
    get_cached_event,
    get_event,
    get_event_by_id,
    get_event_for_command,
    get_events_by_id,
    list_categories,
    list_categories_of,
    list_events,
    list_sections,
    list_sections_of,
    peek_event,
    plan_version,
    publishes_report,
    read_cached_event,
    read_events,
    read_prices_call,
    read_seats_by_guid,
    seat_guids,
    seat_guids_of_section,
    seat_ids_in_plan_order,
    seat_ids_of_guids,
    seats_across_events,
    seats_by_guid,
    seats_by_id,
    section_ids,
    section_rows,
    section_seats,
    section_slugs,
    sections_by_id,
    selling_event_ids,
    selling_state,
)
from apps.events.interest import counts, intake
from apps.events.interest.demand import estimate_demand
from apps.events.organizers.admin_scope import OrganizerScopedAdmin
from apps.events.organizers.event_values import EventValuesMixin
from apps.events.organizers.legal_pages import LegalLink, Terms, current_legal, current_terms
from apps.events.organizers.legal_pages import list_links as list_legal_links
from apps.events.organizers.locks import lock_organizer
from apps.events.organizers.membership_backend import (
    is_member,
    is_permitted,
    list_memberships,
    list_permitted_members,
    permitted_organizers,
)
from apps.events.pricing import PricePolicy
from apps.events.recents.archive import (
    ARCHIVED_DAYS as SEARCHES_ARCHIVED_DAYS,
)
from apps.events.recents.archive import (
    delete_archived_searches,
    delete_unused_histories,
)
from apps.events.recents.owners import COOKIE_DAYS as SEARCHES_COOKIE_DAYS
from apps.events.recents.personal_data import erase_searches, export_searches
from apps.events.registries import (
    Availability,
    ReturnTerms,
    RoomInterest,
    SectionSlugs,
    availability,
    on_organizer_change,
    on_publish,
    provide_availability,
    provide_refund_terms,
    provide_return_policies,
    provide_room_interest,
)
from apps.events.revisions.proposal import EFFECTIVE_AFTER_SECONDS, Proposal
from apps.events.revisions.proposal import Kind as ChangeKind
from apps.events.revisions.registry import ChangePart, provide_change_part
from apps.events.revisions.terms import BuyerTerms, cap_since, terms_at
from apps.events.search.index_reader import begin_search_reader
from apps.events.search.index_writer import Stock, events_without_reported_stock, report_stock
from apps.events.staff.buyer_price import URL_NAME as BUYER_PRICE_URL
from apps.events.staff.buyer_price import describe_buyer_prices
from apps.events.staff.staff_events import StaffEvent, get_staff_event, list_staff_events

__all__ = [
    "ANNOUNCEMENT_FRAME",
    "BUYER_PRICE_URL",
    "CAPACITY_MAX",
    "EFFECTIVE_AFTER_SECONDS",
    "PRICE_MINOR_MAX",
    "RATE_MAX",
    "SEARCHES_ARCHIVED_DAYS",
    "SEARCHES_COOKIE_DAYS",
    "VIEW_METRICS",
    "Announcement",
    "AnnouncementFeed",
    "Availability",
    "Bill",
    "BillItem",
    "BillLine",
    "BuyerTerms",
    "ChangeKind",
    "ChangePart",
    "CurrentAnnouncements",
    "Draft",
    "EventNotFound",
    "EventValuesMixin",
    "EventView",
    "Finding",
    "LegalLink",
    "Level",
    "OrganizerScopedAdmin",
    "Policy",
    "Presale",
    "PriceChange",
    "PricePolicy",
    "Proposal",
    "ReturnTerms",
    "RoomInterest",
    "SeatView",
    "SectionSlugs",
    "SectionView",
    "StaffEvent",
    "Stock",
    "Terms",
    "WaitingRoomSettings",
    "add_category",
    "add_event_inline",
    "allocate_amount",
    "announcements_of",
    "announcements_since",
    "availability",
    "begin_search_reader",
    "cached_slug",
    "calculate_bill",
    "cancel_event",
    "cap_since",
    "category_id",
    "current_legal",
    "current_terms",
    "delete_archived_searches",
    "delete_unused_histories",
    "describe_bill",
    "describe_buyer_prices",
    "erase_searches",
    "estimate_demand",
    "events_call",
    "events_without_reported_stock",
    "export_searches",
    "get_cached_event",
    "get_event",
    "get_event_by_id",
    "get_event_for_command",
    "get_events_by_id",
    "get_staff_event",
    "is_member",
    "is_permitted",
    "list_categories",
    "list_categories_of",
    "list_events",
    "list_legal_links",
    "list_memberships",
    "list_permitted_members",
    "list_sections",
    "list_sections_of",
    "list_staff_events",
    "lock_organizer",
    "lock_plan",
    "move_seats",
    "newest_announcements",
    "on_check_draft",
    "on_organizer_change",
    "on_publish",
    "peek_event",
    "percent",
    "permitted_organizers",
    "plan_version",
    "provide_availability",
    "provide_change_part",
    "provide_refund_terms",
    "provide_return_policies",
    "provide_room_interest",
    "publishes_report",
    "read_cached_event",
    "read_events",
    "read_prices_call",
    "read_seats_by_guid",
    "report_stock",
    "reprice_category",
    "resize_section",
    "seat_guids",
    "seat_guids_of_section",
    "seat_ids_in_plan_order",
    "seat_ids_of_guids",
    "seats_across_events",
    "seats_by_guid",
    "seats_by_id",
    "section_ids",
    "section_rows",
    "section_seats",
    "section_slugs",
    "sections_by_id",
    "selling_event_ids",
    "selling_state",
    "set_report",
    "set_section_access",
    "terms_at",
    "write_accepted_views",
]

# Bills and prices; see apps/events/pricing.py.
Bill = pricing.Bill
BillLine = pricing.BillLine
BillItem = pricing.BillItem
percent = pricing.percent
calculate_bill = pricing.calculate_bill
allocate_amount = pricing.allocate_amount


def describe_bill() -> Any:
    """Return the serializer of a bill for the OpenAPI document. Imported here because the fast path has no DRF."""
    from apps.events.serializers import BillSerializer

    return BillSerializer()


# Changes to a published event; each joins the caller's transaction. See apps/events/changes.py.
CAPACITY_MAX = changes.CAPACITY_MAX
PRICE_MINOR_MAX = changes.PRICE_MINOR_MAX
RATE_MAX = pricing.RATE_MAX
PriceChange = changes.PriceChange
add_category = changes.add_category
category_id = changes.category_id
lock_plan = changes.lock_plan
move_seats = changes.move_seats
cancel_event = changes.cancel_event
reprice_category = changes.reprice_category
resize_section = changes.resize_section
set_section_access = changes.set_section_access
set_report = changes.set_report

# Announcements to all visitors; see apps/events/announcements/.
Announcement = queries.Announcement
AnnouncementFeed = feed.Feed
CurrentAnnouncements = queries.CurrentAnnouncements
ANNOUNCEMENT_FRAME = service.FRAME
announcements_of = feed.feed_of_event


def newest_announcements(event: EventView) -> dict[str, Any]:
    """Return the newest announcements of the event, as context for includes/announcements.html."""
    return template_context.newest(feed.read(event.id, event.starts_at))


def announcements_since(known: Mapping[int, int]) -> dict[int, AnnouncementFeed]:
    """Return the feeds, read from PostgreSQL, of those events whose last version is not the known one (0: none)."""
    return {event_id: feed.Feed(current) for event_id, current in queries.changed_since(known).items()}


# Views of events; see apps/events/interest/.
VIEW_METRICS = (*intake.METRICS, *counts.METRICS)
write_accepted_views = intake.intake.close
"""Write the views that this process of `web` has accepted, before it ends."""
