"""Creates many distinct codes at once, for example for a mailing or a partner: either all of them or none."""

import csv
from argparse import ArgumentParser
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from django.core.management.base import CommandError, OutputWrapper
from django.db import IntegrityError
from django.db.models import Model

from apps.kernel import clock
from apps.kernel.cli import parse_bounded_integer, parse_limit, parse_moment, report_errors_in_one_line
from apps.kernel.codes import code_format
from apps.kernel.codes.code_format import COUNT_MAX, PREFIX_LENGTH_MAX, InvalidCode, normal_code
from apps.kernel.db import transactions

LIMIT_MAX = 1_000
BATCH_MAX = 1_000
"""Rows inserted by one statement."""
NOTE_LENGTH_MAX = 200


def make_codes(
    model: type[Model], parts: str, part_ids: Collection[int], count: int, prefix: str, **values: Any
) -> list[Any]:
    """Create `count` random codes with the same values in one transaction, and return them. `parts` is the model's
    field with the parts of the event for which a code is valid. Without `part_ids` it is valid for all parts."""
    field: Any = model._meta.get_field(parts)
    between, code_id, part_id = field.remote_field.through, field.m2m_column_name(), field.m2m_reverse_name()
    with transactions.write():
        now = clock.now()
        new = [model(code=code, created_at=now, **values) for code in code_format.new_codes(count, prefix)]
        codes = model._default_manager.bulk_create(new, BATCH_MAX)
        pairs = [between(**{code_id: code.pk, part_id: each}) for code in codes for each in part_ids]
        between._default_manager.bulk_create(pairs, BATCH_MAX)
    return codes


def add_code_arguments(parser: ArgumentParser, *, uses: str, of_one_buyer: str) -> None:
    """Add the arguments that all kinds of codes have."""
    report_errors_in_one_line(parser)
    add = parser.add_argument
    add("event", metavar="EVENT", help="the event's slug")
    add("--count", required=True, metavar="N", help=f"number of codes, at most {COUNT_MAX:,}")
    add("--prefix", default="", help=f"at most {PREFIX_LENGTH_MAX} characters before the random ones")
    add("--uses", default="1", metavar="N", help=f"{uses}, or none for no limit; default: 1")
    add("--per-buyer", metavar="N", help=f"{of_one_buyer}; default: no limit")
    add("--valid-from", metavar="TIME", help="ISO 8601 with its offset, such as 2027-03-01T10:00+01:00")
    add("--valid-until", metavar="TIME", help="likewise")
    add("--note", default="", help="for staff only")


def resolve_ids(option: str, named: Iterable[str], ids: Mapping[str, int]) -> list[int]:
    """Return the ids of these names without duplicates. Raises CommandError."""
    names = list(dict.fromkeys(named))
    unknown = [name for name in names if name not in ids]
    if unknown:
        raise CommandError(f"{option} {unknown[0][:80]!r}: there are {', '.join(sorted(ids))}")
    return [ids[name] for name in names]


def make_from_options(
    model: type[Model], parts: str, part_ids: Collection[int], options: Mapping[str, Any], uses_max: int, **values: Any
) -> list[Any]:
    """Create the codes that the options request. Raises CommandError."""
    try:
        return make_codes(
            model,
            parts,
            part_ids,
            parse_bounded_integer(options["count"], "--count", COUNT_MAX),
            _prefix(options["prefix"]),
            uses_max=parse_limit(options["uses"], "--uses", uses_max),
            uses_per_buyer_max=parse_limit(options["per_buyer"], "--per-buyer", LIMIT_MAX),
            valid_from=parse_moment(options["valid_from"], "--valid-from"),
            valid_until=parse_moment(options["valid_until"], "--valid-until"),
            note=_note(options["note"]),
            **values,
        )
    except IntegrityError as error:
        raise CommandError(f"nothing was created: {transactions.violated_constraint(error)}") from error


def write_csv(out: OutputWrapper, codes: Iterable[Any], **more: Any) -> None:
    """Write one line for each code. `more` maps the names of further columns to functions of the code."""
    write = csv.writer(out, lineterminator="\n").writerow
    write(["code", "uses", "valid_from", "valid_until", *more])
    for code in codes:
        times = [time.isoformat() if time else "" for time in (code.valid_from, code.valid_until)]
        write([code.code, code.uses_max or "", *times, *(of(code) for of in more.values())])


def _prefix(text: str) -> str:
    try:
        prefix = normal_code(text)
    except InvalidCode as error:
        raise CommandError(f"--prefix: {error}") from error
    if len(prefix) > PREFIX_LENGTH_MAX:
        raise CommandError(f"--prefix: at most {PREFIX_LENGTH_MAX} characters")
    return prefix


def _note(text: str) -> str:
    words = " ".join(text.split())
    if len(words) > NOTE_LENGTH_MAX or not words.isprintable():
        raise CommandError(f"--note: at most {NOTE_LENGTH_MAX} printable characters")
    return words
