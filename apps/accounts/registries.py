"""Listeners of log-ins, the source of personal data and the provider of staff links. The apps above register them when
they load, so that imports point downward only."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from django.http import HttpRequest

LogInListener = Callable[[HttpRequest, int], object]
"""Called with the request and the account's id."""

_before_log_in: list[LogInListener] = []
_after_log_in: list[LogInListener] = []


def before_log_in(listener: LogInListener) -> None:
    """Register a listener that runs before the session starts: if it fails, the form can be sent again."""
    if listener not in _before_log_in:
        _before_log_in.append(listener)


def after_log_in(listener: LogInListener) -> None:
    """Register a listener that runs once the session has started."""
    if listener not in _after_log_in:
        _after_log_in.append(listener)


def call_before_log_in(request: HttpRequest, account_id: int) -> None:
    for listener in _before_log_in:
        listener(request, account_id)


def call_after_log_in(request: HttpRequest, account_id: int) -> None:
    for listener in _after_log_in:
        listener(request, account_id)


class Erasure(NamedTuple):
    """What a user's request to erase everything has done."""

    needed: Sequence[str] = ()
    """Sentences for the user: which data is needed by now. The account is then not closed."""
    is_complete: bool = True
    """Whether everything is erased; if not, the account is closed and the rest is erased later."""


class PersonalData(Protocol):
    """The data that all apps store about the user of an account."""

    def export(self, account_id: int) -> dict[str, Any]:
        """Return everything as JSON values."""

    def find_needed(self, account_id: int) -> list[str]:
        """Return sentences for the user: which data is still needed. Empty if the account can be erased."""

    def find_kept(self, account_id: int) -> list[str]:
        """Return sentences for the user: which data is kept after an erasure, why, and how long."""

    def erase(self, account_id: int) -> Erasure:
        """Close the account and erase everything, now or, if it is much or some is still needed, after the request.
        If data of the account is needed by now, close nothing, and erase the rest if it is little. It can be
        repeated."""


_personal_data: list[PersonalData] = []


def provide_personal_data(source: PersonalData) -> None:
    """Set the source of personal data for the account's page."""
    _personal_data[:] = [source]


def get_personal_data() -> PersonalData:
    return _personal_data[0]


class StaffLink(NamedTuple):
    """A link to a page for staff, in the header of the site's pages."""

    label: str
    url: str


StaffLinkProvider = Callable[[Any, str], Sequence[StaffLink]]
"""Called with a user of the staff and the slug of the page's event, empty on other pages."""
_staff_links: list[StaffLinkProvider] = []


def provide_staff_links(provider: StaffLinkProvider) -> None:
    """Set the provider of the links that staff see in the header of the site's pages. A later provider replaces an
    earlier one."""
    _staff_links[:] = [provider]


def list_staff_links(user: Any, event_slug: str) -> Sequence[StaffLink]:
    """Return the links of this user on a page of this event (empty: of no event); none unless the user is staff."""
    is_staff = getattr(user, "is_active", False) and getattr(user, "is_staff", False)
    return _staff_links[0](user, event_slug) if is_staff and _staff_links else ()
