from apps.events.models.announcements import AnnouncementArchive, AnnouncementFeed, AnnouncementVersion
from apps.events.models.catalog import Category, Event, OnSale, Seat, SeatingPlan, Section, Venue
from apps.events.models.organizers import LegalPage, Membership, Organizer, Role
from apps.events.models.recents import ArchivedSearch, RecentSearch, SearchHistory
from apps.events.models.revisions import EventChange
from apps.events.models.search import (
    SearchChange,
    SearchDocument,
    SearchPosting,
    SearchState,
    SearchTerm,
    Synonym,
)

__all__ = [
    "AnnouncementArchive",
    "AnnouncementFeed",
    "AnnouncementVersion",
    "ArchivedSearch",
    "Category",
    "Event",
    "EventChange",
    "LegalPage",
    "Membership",
    "OnSale",
    "Organizer",
    "RecentSearch",
    "Role",
    "SearchChange",
    "SearchDocument",
    "SearchHistory",
    "SearchPosting",
    "SearchState",
    "SearchTerm",
    "Seat",
    "SeatingPlan",
    "Section",
    "Synonym",
    "Venue",
]
