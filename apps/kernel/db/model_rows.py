"""Builds model instances from the rows of an SQL file's statement. For a small query, Django would spend most of the
time composing the statement."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

from django.db import models

Row = TypeVar("Row", bound=models.Model)


def build_instances(model: type[Row], rows: Iterable[Sequence[Any]]) -> list[Row]:
    """Return an instance for each row; rows have all columns of the model in the order of its fields."""
    names, documents = _columns(model)
    found = []
    for row in rows:
        values = list(row)
        assert len(values) == len(names), f"{len(values)} columns of {model.__name__}, which has {len(names)}"
        for position in documents:
            if values[position] is not None:
                # Django's connections return jsonb as text.
                values[position] = json.loads(values[position])
        found.append(model.from_db("default", names, values))
    return found


@cache
def _columns(model: type[models.Model]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names of the columns, and which of them are JSON."""
    fields = model._meta.concrete_fields
    documents = tuple(position for position, one in enumerate(fields) if isinstance(one, models.JSONField))
    return tuple(one.attname for one in fields), documents
