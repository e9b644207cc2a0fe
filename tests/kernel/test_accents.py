"""Accents as runs of combining marks: Python normalizes them in quadratic time, and a request can contain 100,000."""

import time
from collections.abc import Callable

import pytest

from apps.events.search.words.text import fold, tokenize
from apps.kernel.codes import code_format
from apps.kernel.http import problems
from apps.orders.checkout.buyer_details import read_details


def refuse_code(text: str) -> None:
    with pytest.raises(code_format.InvalidCode):
        code_format.normal_code(text)


def refuse_name(text: str) -> None:
    with pytest.raises(problems.Invalid):
        read_details({"name": text, "email": "ann@example.org", "payment_method": "card"}, methods=("card",))


@pytest.mark.parametrize("read", [refuse_code, refuse_name, fold, tokenize])
def test_the_time_grows_with_the_length_only(read: Callable[[str], object]) -> None:
    """Sixteen times the length took 256 times as long."""

    def seconds_for(marks: int) -> float:
        text = "a" + "\u0315\u0300" * marks
        begun = time.thread_time()
        read(text)
        return time.thread_time() - begun

    short = min(seconds_for(2_000) for _ in range(5))
    assert min(seconds_for(32_000) for _ in range(3)) < 64 * max(short, 0.002)


def test_decomposed_text_is_still_composed_and_folded() -> None:
    details = read_details({"name": "Zoe\u0308", "email": "z@example.org", "payment_method": "card"}, methods=("card",))
    assert details.name == "Zo\u00eb"
    assert code_format.normal_code(" e\u0301te\u0301 \uff11") == "\u00c9T\u00c91"
    assert fold("Bjo\u0308rk Łódź Ǆ ﬁ") == fold("BJÖRK łódź ǆ fi")
