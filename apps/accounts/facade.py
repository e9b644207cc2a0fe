"""The interface of the accounts app for the apps above it."""

from django.http.response import HttpResponseBase

from apps.accounts.confirmed_addresses import confirmed_address, has_unconfirmed_sign_up
from apps.accounts.models import NAME_LENGTH_MAX, User, account_name
from apps.accounts.passwords.backend import PATH as PASSWORD_BACKEND
from apps.accounts.personal_data import (
    accounts_of_address,
    confirmed_addresses,
    erase_account,
    export_account,
    is_staff,
)
from apps.accounts.registries import (
    Erasure,
    StaffLink,
    after_log_in,
    before_log_in,
    list_staff_links,
    provide_personal_data,
    provide_staff_links,
)
from apps.accounts.second_factor.codes import lacks_required_factor
from apps.accounts.sessions.batch_authentication import (
    AccountCredentials,
    guess_account_id,
    read_accounts,
    session_key_of,
)
from apps.accounts.staff.reauthentication import (
    SensitiveAdminMixin,
    record_personal_data_read,
    record_staff_action,
    require_recent_authentication,
    sensitive_action,
)
from apps.accounts.tokens.account_tokens import ACCOUNT_ID_MAX, AccessToken
from apps.accounts.tokens.versions import AccountVersion, is_current, is_revoked
from apps.accounts.tokens.versions import revision as versions_revision

__all__ = [
    "ACCOUNT_ID_MAX",
    "NAME_LENGTH_MAX",
    "PASSWORD_BACKEND",
    "AccessToken",
    "AccountCredentials",
    "AccountVersion",
    "Erasure",
    "SensitiveAdminMixin",
    "StaffLink",
    "User",
    "account_name",
    "accounts_of_address",
    "after_log_in",
    "before_log_in",
    "confirmed_address",
    "confirmed_addresses",
    "delete_signed_in_cookie",
    "erase_account",
    "export_account",
    "guess_account_id",
    "has_unconfirmed_sign_up",
    "is_current",
    "is_revoked",
    "is_staff",
    "lacks_required_factor",
    "list_staff_links",
    "provide_personal_data",
    "provide_staff_links",
    "read_accounts",
    "record_personal_data_read",
    "record_staff_action",
    "require_recent_authentication",
    "sensitive_action",
    "session_key_of",
    "versions_revision",
]


def delete_signed_in_cookie(response: HttpResponseBase) -> None:
    """Delete the cookie that makes a page's script ask for the user. Imported here because the fast path has no pages
    of accounts."""
    from apps.accounts.pages import adapter

    adapter.delete_signed_in_cookie(response)
