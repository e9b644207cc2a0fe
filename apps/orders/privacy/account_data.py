"""The data of an account's user for the account's pages (`accounts.provide_personal_data`)."""

from functools import partial
from typing import Any

from django.conf import settings
from django.db.models import Max

from apps.accounts import facade as accounts
from apps.orders.privacy import background_erasure, erasure, export
from apps.orders.privacy.person import Person, documents_in_orders_of_others, own_documents, person_of_account
from apps.queue import facade as queue

_UNTIL_THEN = "It has your email address, but was not made with your account. It is erased when it is no longer needed."


class AccountData:
    def export(self, account_id: int) -> dict[str, Any]:
        return export.export_person(person_of_account(account_id))

    def find_needed(self, account_id: int) -> list[str]:
        return erasure.find_needed(person_of_account(account_id), of_accounts_only=True)

    def find_kept(self, account_id: int) -> list[str]:
        person = person_of_account(account_id)
        kept = [f"{reason} {_UNTIL_THEN}" for reason in _needed_of_guests(person)]
        names = queue.events_of_sign_ups(account_id)
        kept += [f"That you signed up for the draw of {name}, without your name and address." for name in names]
        documents = (own_documents(person), documents_in_orders_of_others(person))
        years_of = [found.aggregate(year=Max("year"))["year"] for found in documents]
        year = max((year for year in years_of if year is not None), default=None)
        if year is None:
            return kept
        years = settings.RETENTION_INVOICES_YEARS
        period = f"until the end of {year + years}, as tax law requires" if years else "as tax law requires"
        return [*kept, f"Your invoices and credit notes, with your name and email address, {period}."]

    def erase(self, account_id: int) -> accounts.Erasure:
        """Erase the user's data, then close the account, unless data of the account is needed by now. If it is much
        data, or a guest's order with the user's address is still needed, an outbox message erases the rest."""
        person = person_of_account(account_id)
        has_much = erasure.has_much(person)
        if not has_much:
            erasure.erase_person(person)
        if needed := erasure.find_needed(person, of_accounts_only=True):
            return accounts.Erasure(needed)
        is_complete = not (has_much or erasure.find_needed(person))
        if is_complete:
            accounts.erase_account(account_id)
        else:
            accounts.erase_account(account_id, partial(background_erasure.publish, person))
        return accounts.Erasure(is_complete=is_complete)


def _needed_of_guests(person: Person) -> list[str]:
    """Return which data of orders that only have one of the person's addresses is still needed. A guest may
    type any address, so these keep no account from being erased."""
    of_account = set(erasure.find_needed(person, of_accounts_only=True))
    return [reason for reason in erasure.find_needed(person) if reason not in of_account]
