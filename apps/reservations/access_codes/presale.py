"""Access codes at the entrance of a presale: the hooks for `queue.provide_presale_codes`."""

from django.http import HttpRequest, HttpResponse

from apps.events import facade as events
from apps.queue import facade as queue
from apps.reservations.access_codes import cookie
from apps.reservations.access_codes.attempt_limit import count_attempt
from apps.reservations.errors import AccessCodeWrong
from apps.reservations.holds import access_codes
from apps.reservations.holds.requests import code_of


class PresaleCodes:
    """Any valid code of the event opens the waiting room; at the hold it opens its own sections only."""

    def check(self, event: events.EventView, caller: queue.Caller, code: str, address: str) -> None:
        count_attempt(caller, {"access_code": code}, lambda: address)
        stored = code_of(code)
        if not stored:
            raise AccessCodeWrong
        is_account = caller.account_id is not None
        buyer = f"account:{caller.account_id}" if is_account else f"visitor:{caller.visitor_id}"
        sections = [section.id for section in events.list_sections(event.id)]
        access_codes.opened_sections(event.id, stored, buyer, sections)

    def keep(self, request: HttpRequest, response: HttpResponse, event_slug: str, code: str) -> None:
        cookie.save_code(request, response, event_slug, code_of(code) or "")
