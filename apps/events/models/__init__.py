from apps.events.models.announcements import AnnouncementArchive, AnnouncementFeed, AnnouncementVersion
from apps.events.models.catalog import Category, Event, OnSale, Seat, SeatingPlan, Section, Venue

__all__ = [
    "AnnouncementArchive",
    "AnnouncementFeed",
    "AnnouncementVersion",
    "Category",
    "Event",
    "OnSale",
    "Seat",
    "SeatingPlan",
    "Section",
    "Venue",
]
