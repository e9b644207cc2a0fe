"""Reads and parses plan files: checks the size, detects the format, and returns the arranged plan."""

import os
from pathlib import Path

from apps.events.plans.csv_file import read_csv
from apps.events.plans.draft import arrange
from apps.events.plans.plan import Limits, Plan, PlanError
from apps.events.plans.pretix import read_json

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_file(path: Path, limits: Limits) -> bytes:
    """Return the bytes of the file. A file above the limit is refused by its size, before it is read.

    Raises PlanError if the file does not exist, cannot be read, or is too large.
    """
    if "\0" in str(path):
        raise PlanError("", "this is not a file name")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Sizes are wrong for pipes and growing files: never read more than one byte past the limit.
            data = file.read(limits.file_bytes_max + 1) if size <= limits.file_bytes_max else b""
    except OSError as error:
        raise PlanError("", (error.strerror or "cannot be read").lower()) from error
    if size > limits.file_bytes_max or len(data) > limits.file_bytes_max:
        raise _too_large(limits)
    return data


def parse_plan(data: bytes, limits: Limits | None = None) -> Plan:
    """Parse the bytes into a plan: JSON if they begin like it, otherwise CSV.

    Raises PlanError with the place in the file.
    """
    limits = limits or Limits()
    if len(data) > limits.file_bytes_max:
        raise _too_large(limits)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PlanError("", "the text is UTF-16; save it as UTF-8")
    data = data.removeprefix(_BYTE_ORDER_MARK)
    start = data[:4096].lstrip()
    if not start:
        raise PlanError("", "the file is empty")
    if start.startswith((b"{", b"[")):
        plan = _within(limits, arrange(read_json(data, limits)))
        if not plan.seat_count and not plan.areas:
            raise PlanError("zones", "the plan has neither seats nor areas")
        return plan
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PlanError(f"line {line}", "the text is not UTF-8") from error
    if "," not in text.partition("\n")[0] and ";" not in text.partition("\n")[0]:
        raise PlanError("line 1", "this is neither JSON nor CSV with a header")
    return _within(limits, arrange(read_csv(text, limits)))


def _within(limits: Limits, plan: Plan) -> Plan:
    pairs = sum(len({seat.category for seat in section.seats}) for section in plan.sections)
    if pairs > limits.prices_max:
        raise PlanError("", f"the sections have more than {limits.prices_max:,} categories together")
    return plan


def _too_large(limits: Limits) -> PlanError:
    return PlanError("", f"the file is larger than {limits.file_bytes_max / 1024 / 1024:.0f} MiB")
