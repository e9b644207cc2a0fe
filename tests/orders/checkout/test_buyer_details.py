"""Names that buyers and recipients of tickets type: invisible characters are removed, control characters refused."""

import pytest

from apps.kernel.http import problems
from apps.orders.checkout.buyer_details import EMAIL_LENGTH_MAX, read_details, read_name

REMOVED = [*"\u00ad\u200b\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff\u3164", "\U000e0041"]
NAMES = ["می\u200cنا", "ක්\u200dරිස්", "\u200fדנה\u200f", "Ann\u200e", "\u061cليلى", "李 安", "Zoë O’Neill-Ødegård"]


@pytest.mark.parametrize("character", REMOVED)
def test_invisible_characters_are_removed_from_names_and_addresses(character: str) -> None:
    assert read_name({"name": f"{character}Ann{character} Lee {character}"}) == "Ann Lee"
    payload = {"name": f"Ann{character} Lee", "email": f"ann@exam{character}ple.org{character}"}
    details = read_details(payload, methods={"card": "Card"})
    assert (details.name, details.email) == ("Ann Lee", "ann@example.org")
    account = read_details({}, methods={"card": "Card"}, email="a@example.org", name=f"Ann{character}")
    assert account.name == "Ann", "a name that an account already has"


@pytest.mark.parametrize("name", NAMES)
def test_names_in_all_scripts_keep_their_joiners_and_marks_of_direction(name: str) -> None:
    assert read_name({"name": name}) == name


@pytest.mark.parametrize("name", ["Ann\nLee", "Ann\x00", "Ann\u2028Lee", "Ann\u2029Lee", "Ann\x1b[0m", "Ann\u0085Lee"])
def test_control_characters_and_line_separators_are_refused(name: str) -> None:
    with pytest.raises(problems.Invalid) as refused:
        read_name({"name": name})
    assert refused.value.extra["errors"] == {"name": "contains unprintable characters"}


@pytest.mark.parametrize("name", ["\u200b", "\u202e \u2066", "\u200d\u200c", "\u200f", "\u3164", "\u0301"])
def test_a_name_that_shows_nothing_is_missing(name: str) -> None:
    with pytest.raises(problems.Invalid) as refused:
        read_name({"name": name})
    assert refused.value.extra["errors"] == {"name": "is required"}


@pytest.mark.parametrize(
    "email",
    ["a@[127.0.0.1]", "a@[IPv6:::1]", "a@localhost]", "a@localhost", "a@x.lan", "a@b.Home.arpa", "a@erased.invalid"],
)
def test_an_address_of_a_host_instead_of_a_domain_is_refused(email: str) -> None:
    with pytest.raises(problems.Invalid) as refused:
        read_details({"name": "Ann", "email": email}, methods={"card": "Card"})
    assert set(refused.value.extra["errors"]) == {"email"}


def test_an_address_that_is_longer_in_small_letters_is_refused() -> None:
    email = "a@" + ".".join(["\u0130" * 31] * 4) + ".com"
    assert len(email) < EMAIL_LENGTH_MAX < len(email.lower())
    with pytest.raises(problems.Invalid) as refused:
        read_details({"name": "Ann", "email": email}, methods={"card": "Card"})
    assert set(refused.value.extra["errors"]) == {"email"}
