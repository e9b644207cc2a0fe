"""The texts of an event as forms of staff take them."""

from django.core.exceptions import ValidationError

from apps.events.creation.event_creation import (
    DESCRIPTION_CHARACTERS_MAX,
    PERFORMER_CHARACTERS_MAX,
    PERFORMERS_MAX,
)
from apps.events.models.catalog import lines_of


def read_performers(text: str) -> str:
    """Return the performers one a line, without empty and repeated ones. Raises ValidationError if they are too many or
    too long."""
    names = lines_of(text)
    if len(names) > PERFORMERS_MAX or any(len(name) > PERFORMER_CHARACTERS_MAX for name in names):
        raise ValidationError(
            f"Enter at most {PERFORMERS_MAX} performers, each with at most {PERFORMER_CHARACTERS_MAX} characters."
        )
    return "\n".join(names)


def read_description(text: str) -> str:
    """Return the description. Raises ValidationError if it is too long."""
    if len(text) > DESCRIPTION_CHARACTERS_MAX:
        raise ValidationError(f"Enter at most {DESCRIPTION_CHARACTERS_MAX:,} characters.")
    return text
