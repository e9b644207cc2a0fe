"""Seating plans from files: the open pretix JSON and CSV, read into frozen values or refused with a place."""

from apps.events.plans.layout import areas_of, from_layout, to_layout
from apps.events.plans.parse import parse_plan, read_file
from apps.events.plans.plan import Area, Limits, Plan, PlanCategory, PlanError, PlanSeat, PlanSection

__all__ = [
    "Area",
    "Limits",
    "Plan",
    "PlanCategory",
    "PlanError",
    "PlanSeat",
    "PlanSection",
    "areas_of",
    "from_layout",
    "parse_plan",
    "read_file",
    "to_layout",
]
