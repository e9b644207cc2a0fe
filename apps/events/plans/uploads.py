"""Plans that staff send: read one at a time in each process, because a large one takes seconds of processor time."""

import threading

from apps.events.plans.parse import parse_plan
from apps.events.plans.plan import Limits, Plan, PlanError

_reading = threading.Lock()


def parse_alone(data: bytes, limits: Limits) -> Plan:
    """Return the plan of these bytes. Raises PlanError, also while another thread of this process reads a plan: the
    process's other threads answer other requests meanwhile."""
    if not _reading.acquire(blocking=False):
        raise PlanError("", "another seating plan is being read at the moment; send the form again")
    try:
        return parse_plan(data, limits)
    finally:
        _reading.release()
