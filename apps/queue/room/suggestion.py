"""The rate and the cap that a waiting room could have, from the estimate of the demand."""

import math
from dataclasses import dataclass

from apps.events import facade as events

SHOPPING_SECONDS = 120
"""How long a visitor shops on average, until the room has measured it."""
TICKETS_PER_VISITOR = 2
ACTIVE_MIN, ACTIVE_MAX = 50, 2_000
"""The range of suggested caps: with a smaller one tickets stay unsold while visitors wait; a larger one is left to
staff, who know their machines."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    rate_per_second: int
    active_max: int
    basis: tuple[str, ...]
    """Sentences."""


def suggest_limits(event_id: int) -> Suggestion | None:
    """Return the rate and cap for the opening of sales; None without an estimate: of a draft, or once sales are open.

    Not more visitors shop at once than can buy what there is, and the rate replaces them as fast as they leave.
    """
    estimate = events.estimate_demand(event_id)
    if estimate is None:
        return None
    buyers = math.ceil(estimate.capacity / TICKETS_PER_VISITOR)
    active = max(ACTIVE_MIN, min(ACTIVE_MAX, buyers, max(estimate.high, 1)))
    rate = max(1, math.ceil(active / SHOPPING_SECONDS))
    expected = (
        f"About {estimate.visitors:,} visitors are expected in the first hour ({estimate.low:,} to {estimate.high:,})."
    )
    cap = (
        f"At most {active:,} shop at once: {estimate.capacity:,} tickets are for about {buyers:,} visitors of "
        f"{TICKETS_PER_VISITOR} tickets; the cap is between {ACTIVE_MIN} and {ACTIVE_MAX:,}."
    )
    pace = f"A visitor shops for {SHOPPING_SECONDS} s on average, so {rate:,} a second replace those who leave."
    return Suggestion(rate, active, (expected, *estimate.basis, cap, pace))
