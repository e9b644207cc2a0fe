"""Access codes at the entrance of a presale: the hooks for `queue.provide_presale_codes`."""

from collections.abc import Sequence
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from apps.events import facade as events
from apps.kernel.db import arrays, sql
from apps.queue import facade as queue
from apps.reservations.access_codes import cookie
from apps.reservations.access_codes.attempt_limit import count_attempt
from apps.reservations.errors import AccessCodeWrong
from apps.reservations.holds import access_codes
from apps.reservations.holds.requests import code_of

KEY_BYTES = 8
"""A code's key in queue entries is its id, as int8send of PostgreSQL writes it."""
_codes_left = sql.load("apps.reservations", "access_codes_left")


class PresaleCodes:
    """Any valid code of the event opens the waiting room; at the hold it opens its own sections only."""

    def check(self, event: events.EventView, caller: queue.Caller, code: str, address: str) -> queue.PresaleAccess:
        count_attempt(caller, {"access_code": code}, lambda: address)
        stored = code_of(code)
        if not stored:
            raise AccessCodeWrong
        is_account = caller.account_id is not None
        buyer = f"account:{caller.account_id}" if is_account else f"visitor:{caller.visitor_id}"
        sections = [section.id for section in events.list_sections(event.id)]
        found = access_codes.find_code(event.id, stored, buyer, sections)
        return queue.PresaleAccess(found.id.to_bytes(KEY_BYTES), found.refusal)

    def left_call(self, keys: Sequence[bytes], ended_ids: Sequence[UUID]) -> sql.Call:
        code_ids = [int.from_bytes(key) for key in keys]
        return _codes_left.call(code_ids=arrays.numbers(code_ids), ended_ids=arrays.uuids(ended_ids))

    def keep(self, request: HttpRequest, response: HttpResponse, event_slug: str, code: str) -> None:
        cookie.save_code(request, response, event_slug, code_of(code) or "")
