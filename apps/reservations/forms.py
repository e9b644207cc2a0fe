"""The forms of the page for choosing tickets, parsed into the payload of the API."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from apps.kernel.http import idempotency, problems
from apps.reservations import errors, facade

QUANTITY_DIGITS_MAX = 6
PRICE_DIGITS_MAX = 12


@dataclass
class Choice:
    """A submitted choice. If there are `errors` (sentences for the buyer), it is not held."""

    idempotency_key: str
    payload: dict[str, Any] = field(default_factory=dict)
    general_admission: dict[str, str] = field(default_factory=dict)
    best: dict[str, Any] = field(default_factory=dict)
    access_code: str = ""
    errors: list[str] = field(default_factory=list)


def read_choice(sent: QueryDict) -> Choice:
    """Parse the submitted form."""
    choice = Choice(_key(sent.get("idempotency_key", "")))
    seats = [guid for guid in sent.getlist("seats") if guid]
    if seats:
        choice.payload["seats"] = list(dict.fromkeys(seats))
    if sent.get("ga_section") or sent.get("ga_quantity"):
        section, quantity = sent.get("ga_section", ""), sent.get("ga_quantity", "")
        choice.general_admission = {"section": section, "quantity": quantity}
        choice.payload |= {"ga_section": section, "ga_quantity": _quantity(quantity, choice)}
        if not section:
            choice.errors.append("Choose a section.")
    if sent.get("best_section") or sent.get("best_quantity"):
        best_available = read_party(sent, choice)
        # The form of an offer names seats. It has the party, too, for other offers if a seat has been taken.
        if not seats:
            choice.payload["best_available"] = best_available
    if not choice.payload:
        choice.errors.append("Nothing is selected. Select at least one ticket.")
    if sent.get("replace"):
        choice.payload["replace"] = sent["replace"]
    choice.access_code = sent.get("access_code", "").strip()
    if choice.access_code:
        choice.payload["access_code"] = choice.access_code
    return choice


def read_party(sent: QueryDict, choice: Choice) -> dict[str, Any]:
    """Parse the description of a party: `choice.best` is what was submitted; return it as `best_available`."""
    names = ("section", "quantity", "category", "wheelchairs", "price_max")
    choice.best = {name: sent.get(f"best_{name}", "").strip() for name in names}
    people = _quantity(choice.best["quantity"], choice)
    best_available: dict[str, Any] = {"quantity": people}
    if choice.best["wheelchairs"].strip("0"):
        wheelchairs = _quantity(choice.best["wheelchairs"], choice)
        best_available |= {"accessible": True, "companions": max(0, people - wheelchairs)}
        if not choice.errors and wheelchairs > people:
            choice.errors.append("More wheelchair spaces than people: the number of people includes everyone.")
    for name in ("section", "category"):
        if choice.best[name]:
            best_available[name] = choice.best[name]
    price_max = choice.best["price_max"]
    if price_max.isascii() and price_max.isdigit() and len(price_max) <= PRICE_DIGITS_MAX:
        best_available["price_max_minor"] = int(price_max)
    elif price_max:
        choice.errors.append("Choose a price from the list.")
    return best_available


def _quantity(text: str, choice: Choice) -> int:
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit() and len(stripped) <= QUANTITY_DIGITS_MAX and int(stripped) >= 1:
        return int(stripped)
    choice.errors.append("Enter a whole number of at least 1.")
    return 0


def _key(sent: str) -> str:
    """Return the page's idempotency key, or a new one if it is missing or invalid."""
    try:
        return idempotency.check_key(sent) if sent else str(uuid.uuid4())
    except problems.Invalid:
        return str(uuid.uuid4())


def describe_problem(problem: problems.Problem, best: Mapping[str, Any]) -> list[str]:
    """Return sentences for the buyer; `best` is the submitted choice of best seats, if any."""
    if isinstance(problem, problems.Invalid):
        return [f"{_LABELS.get(name, name)}: {_flat(error)}." for name, error in problem.extra["errors"].items()]
    if isinstance(problem, errors.AccessCodeRequired):
        return [f"{problem.detail} Enter yours below."]
    if isinstance(problem, errors.AccessCodeWrong):
        return [f"{problem.detail} Check the spelling."]
    if isinstance(problem, facade.NotEnoughLeft):
        left = problem.extra["available"]
        if best and not best.get("section"):
            return [f"No section has more than {left} seat{'' if left == 1 else 's'} left. Choose fewer tickets."]
        return [f"Only {left} left in this section. Choose fewer tickets or another section."]
    if isinstance(problem, facade.SoldOut) and best:
        # The section may have free seats that this party cannot use: do not contradict the counts on the page.
        where = " in this section" if best.get("section") else ""
        if best.get("wheelchairs", "").strip("0 "):
            return [f"No wheelchair space is left{where}.{' Choose another section.' if where else ''}"]
        return [
            f"No matching seats are left{where}.",
            "The remaining seats have a different price, or are reserved for wheelchair users and their companions.",
        ]
    return [problem.detail]


_LABELS = {
    "seats": "Seats",
    "ga_section": "Section",
    "ga_quantity": "Number of tickets",
    "best_available": "Best seats",
    "replace": "Reserved tickets",
    "access_code": "Access code",
    "body": "Your selection",
}


def _flat(error: Any) -> str:
    if isinstance(error, Mapping):
        return "; ".join(_flat(inner) for inner in error.values())
    return "; ".join(_flat(inner) for inner in error) if isinstance(error, list | tuple) else str(error)
