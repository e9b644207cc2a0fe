"""Seating plans from files: pretix JSON and CSV, parsed into frozen values or refused with the place of the error."""

from apps.events.plans.layout import StoredLayout, areas_of, from_layout, stored_layout, to_layout
from apps.events.plans.parse import parse_plan, read_file
from apps.events.plans.plan import Area, Limits, Plan, PlanCategory, PlanError, PlanSeat, PlanSection
from apps.events.plans.uploads import LARGE_SEATS, keeping_turn, parse_alone, reading_alone

__all__ = [
    "LARGE_SEATS",
    "Area",
    "Limits",
    "Plan",
    "PlanCategory",
    "PlanError",
    "PlanSeat",
    "PlanSection",
    "StoredLayout",
    "areas_of",
    "from_layout",
    "keeping_turn",
    "parse_alone",
    "parse_plan",
    "read_file",
    "reading_alone",
    "stored_layout",
    "to_layout",
]
