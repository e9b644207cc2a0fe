"""The data of an account's user for the account's pages (`accounts.provide_personal_data`)."""

from functools import partial
from typing import Any

from django.conf import settings
from django.db.models import Max

from apps.accounts import facade as accounts
from apps.orders.privacy import background_erasure, erasure, export
from apps.orders.privacy.person import documents_in_orders_of_others, own_documents, person_of_account
from apps.queue import facade as queue


class AccountData:
    def export(self, account_id: int) -> dict[str, Any]:
        return export.export_person(person_of_account(account_id))

    def find_needed(self, account_id: int) -> list[str]:
        return erasure.find_needed(person_of_account(account_id))

    def find_kept(self, account_id: int) -> list[str]:
        names = queue.events_of_sign_ups(account_id)
        kept = [f"That you signed up for the draw of {name}, without your name and address." for name in names]
        person = person_of_account(account_id)
        documents = (own_documents(person), documents_in_orders_of_others(person))
        years_of = [found.aggregate(year=Max("year"))["year"] for found in documents]
        year = max((year for year in years_of if year is not None), default=None)
        if year is None:
            return kept
        years = settings.RETENTION_INVOICES_YEARS
        period = f"until the end of {year + years}, as tax law requires" if years else "as tax law requires"
        return [*kept, f"Your invoices and credit notes, with your name and email address, {period}."]

    def erase(self, account_id: int) -> accounts.Erasure:
        """Erase the user's data, then close the account, unless more data is needed by now. If it is much data, close
        the account first; an outbox message erases the data."""
        person = person_of_account(account_id)
        has_much = erasure.has_much(person)
        if not has_much:
            erasure.erase_person(person)
        if needed := erasure.find_needed(person):
            return accounts.Erasure(needed)
        if has_much:
            accounts.erase_account(account_id, partial(background_erasure.publish, person))
        else:
            accounts.erase_account(account_id)
        return accounts.Erasure(is_complete=not has_much)
