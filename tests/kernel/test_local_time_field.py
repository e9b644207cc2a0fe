"""Times on the clock of a zone: read exactly, also where clocks change, or refused with the possible readings."""

from datetime import UTC, datetime

import pytest
from django import forms

from apps.kernel.form_fields.local_time import timezone_choices
from apps.kernel.form_fields.local_time_field import LocalTimeField, set_zone

LONDON = "Europe/London"
AUTUMN = "2031-10-26T01:30"
"""Occurs twice in London."""


class TimeForm(forms.Form):
    at = LocalTimeField()
    end = LocalTimeField(required=False)


def form(zone: str, **values: object) -> TimeForm:
    data = {name: value for name, value in values.items() if name != "initial"}
    made = TimeForm(data or None, initial=values.get("initial"))  # type: ignore[arg-type]
    set_zone(made.fields.values(), zone)
    return made


@pytest.mark.parametrize(
    ("zone", "typed", "moment"),
    [
        ("America/Chicago", "2031-12-04T20:00", datetime(2031, 12, 5, 2, tzinfo=UTC)),
        ("America/Chicago", "2031-07-04T20:00", datetime(2031, 7, 5, 1, tzinfo=UTC)),
        ("Asia/Kathmandu", "2031-07-04T20:00", datetime(2031, 7, 4, 14, 15, tzinfo=UTC)),
        (LONDON, "2031-07-04T20:00:30", datetime(2031, 7, 4, 19, 0, 30, tzinfo=UTC)),
        (LONDON, f"{AUTUMN}+01:00", datetime(2031, 10, 26, 0, 30, tzinfo=UTC)),
        (LONDON, f"{AUTUMN}+00:00", datetime(2031, 10, 26, 1, 30, tzinfo=UTC)),
        ("", "2031-07-04T20:00+02:00", datetime(2031, 7, 4, 18, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_on_the_clock_of_its_zone(zone: str, typed: str, moment: datetime) -> None:
    sent = form(zone, at=typed)
    assert sent.is_valid(), sent.errors
    assert (sent.cleaned_data["at"], sent.cleaned_data["end"]) == (moment, None)


@pytest.mark.parametrize(
    ("zone", "typed", "error"),
    [
        (LONDON, "2031-03-30T01:30", "2031-03-30 01:30 does not exist in Europe/London"),
        (LONDON, AUTUMN, f"Enter {AUTUMN}+01:00 for the first or {AUTUMN}+00:00 for the second."),
        (LONDON, "tomorrow", "Enter a date and time."),
        (LONDON, "2031-02-30T10:00", "Enter a date and time."),
        (LONDON, "0001-01-01T00:00+14:00", "Enter a date and time in the years 2000 to 2199."),
        (LONDON, "9999-12-31T23:59", "Enter a date and time in the years 2000 to 2199."),
        ("", "9999-12-31T23:59-14:00", "Enter a date and time in the years 2000 to 2199."),
        (LONDON, "2" * 5_000, "Enter a date and time."),
        (LONDON, "\x00", "Enter a date and time."),
        (LONDON, "", "This field is required."),
        ("", "2031-07-04T20:00", "Choose the venue first: this time is on its clock."),
    ],
)
def test_a_time_that_cannot_be_read_is_refused(zone: str, typed: str, error: str) -> None:
    assert error in form(zone, at=typed).errors["at"][0]


def test_a_time_is_shown_on_the_clock_of_its_zone_and_unchanged_when_sent_again() -> None:
    moment = datetime(2031, 12, 5, 2, 0, 0, 250, tzinfo=UTC)
    shown = str(form("America/Chicago", initial={"at": moment})["at"])
    assert 'type="datetime-local"' in shown
    assert 'value="2031-12-04T20:00"' in shown
    assert ">America/Chicago</span>" in shown
    sent = form("America/Chicago", at="2031-12-04T20:00", initial={"at": moment})
    assert (sent.is_valid(), sent.changed_data) == (True, [])
    moved = form("America/New_York", at="2031-12-04T20:00", initial={"at": moment})
    assert moved.changed_data == ["at"]


def test_an_ambiguous_time_is_shown_with_its_offset_which_can_be_changed() -> None:
    first = datetime(2031, 10, 26, 0, 30, tzinfo=UTC)
    shown = str(form(LONDON, initial={"at": first})["at"])
    assert 'type="text"' in shown
    assert f'value="{AUTUMN}+01:00"' in shown
    refused = str(form(LONDON, at=AUTUMN)["at"])
    assert 'type="text"' in refused
    assert f'value="{AUTUMN}+01:00"' in refused


def test_a_time_with_seconds_can_be_sent_by_a_browser() -> None:
    shown = str(form(LONDON, initial={"at": datetime(2031, 7, 4, 19, 0, 30, tzinfo=UTC)})["at"])
    assert 'value="2031-07-04T20:00:30"' in shown
    assert 'step="1"' in shown


def test_the_choice_of_zones_has_their_current_names_and_one_that_is_in_use() -> None:
    def values(keep: str = "") -> set[str]:
        return {name for _, zones in timezone_choices(keep) for name, _ in zones}

    assert {"Asia/Kolkata", "Europe/Stockholm", "UTC"} <= values()
    assert not {"Asia/Calcutta", "America/Knox_IN", "Asia/Chungking"} & values()
    assert "Asia/Calcutta" in values("Asia/Calcutta")
    assert values("Mars/Olympus") == values()
