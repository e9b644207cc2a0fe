from apps.events.models.announcements import AnnouncementArchive, AnnouncementFeed, AnnouncementVersion
from apps.events.models.catalog import Category, Event, OnSale, Seat, SeatingPlan, Section, Venue
from apps.events.models.organizers import LegalPage, Membership, Organizer, Role

__all__ = [
    "AnnouncementArchive",
    "AnnouncementFeed",
    "AnnouncementVersion",
    "Category",
    "Event",
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
