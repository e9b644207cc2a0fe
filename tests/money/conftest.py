from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.money.harness import OpenHouse


@pytest.fixture
def open_house(settings: Any, monkeypatch: pytest.MonkeyPatch) -> "OpenHouse":
    """Opens a house with so many seats, whose money the provider `books` takes."""
    from apps.orders import providers
    from tests.money.books import NAME, Books
    from tests.money.harness import House

    books = Books()
    settings.PAYMENT_PROVIDER = NAME
    monkeypatch.setitem(providers._makers, NAME, lambda: books)
    return lambda seats: House(books, seats)
