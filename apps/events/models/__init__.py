from apps.events.models.announcements import AnnouncementArchive, AnnouncementFeed, AnnouncementVersion
from apps.events.models.catalog import Category, Event, OnSale, Seat, SeatingPlan, Section, Venue
from apps.events.models.organizers import LegalPage, Membership, Organizer, Role
from apps.events.models.revisions import EventChange

__all__ = [
    "AnnouncementArchive",
    "AnnouncementFeed",
    "AnnouncementVersion",
    "Category",
    "Event",
    "EventChange",
    "LegalPage",
    "Membership",
    "OnSale",
    "Organizer",
    "Role",
    "Seat",
    "SeatingPlan",
    "Section",
    "Venue",
]
