"""Creation of events from a description."""

from apps.events.creation.event_creation import (
    ROOM_ACTIVE_MAX,
    ROOM_RATE_MAX,
    EventDiffers,
    Outcome,
    add_venue,
    create_event,
    free_slug,
    lock_creation,
    plan_limits,
    store_plan,
    write_general_admission,
)
from apps.events.creation.event_spec import EventSpec, GeneralAdmission
from apps.events.creation.texts import read_description, read_performers
from apps.events.publication import EventRefused

__all__ = [
    "ROOM_ACTIVE_MAX",
    "ROOM_RATE_MAX",
    "EventDiffers",
    "EventRefused",
    "EventSpec",
    "GeneralAdmission",
    "Outcome",
    "add_venue",
    "create_event",
    "free_slug",
    "lock_creation",
    "plan_limits",
    "read_description",
    "read_performers",
    "store_plan",
    "write_general_admission",
]
