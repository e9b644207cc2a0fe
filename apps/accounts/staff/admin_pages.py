"""The staff's pages of accounts, of groups and of the security log."""

from typing import Any

from allauth.account.models import EmailAddress, EmailConfirmation
from allauth.mfa.models import Authenticator
from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import UserChangeForm
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse

from apps.accounts import confirmed_addresses, pending_address
from apps.accounts.models import SecurityEvent, User
from apps.accounts.staff.reauthentication import (
    SensitiveAdminMixin,
    record_staff_action,
    require_recent_authentication,
)
from apps.kernel.admin_lists import BoundedPaginator, ReadOnlyAdmin, WholeTextSearchMixin

_PRIVILEGES = ("is_staff", "is_superuser", "groups", "user_permissions")

# allauth's pages would let staff edit second factors and confirm addresses. Groups get a page of our own.
for model in (EmailAddress, EmailConfirmation, Authenticator, Group):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


class UserForm(UserChangeForm):
    """Grants no access for staff to an account whose address another person may have signed up with."""

    def clean_is_staff(self) -> bool:
        is_staff: bool = self.cleaned_data["is_staff"]
        if is_staff and not self.instance.is_staff and confirmed_addresses.has_unconfirmed_sign_up(self.instance):
            raise forms.ValidationError("This account has not confirmed its email address yet.")
        return is_staff


@admin.register(User)
class UserAdmin(WholeTextSearchMixin, SensitiveAdminMixin, DjangoUserAdmin):
    """Only superusers grant privileges, and change or delete accounts of staff: with the permission to change accounts,
    a member of staff could otherwise become a superuser, or take over a superuser's account by its email address."""

    form = UserForm
    paginator = BoundedPaginator
    show_full_result_count = False
    search_fields = ["=username", "=email", "first_name", "last_name"]
    search_help_text = "A complete account name or email address, or part of a first or last name."
    readonly_fields = ["last_login", "date_joined", "token_version", "token_version_changed_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> list[str]:
        fields = [str(field) for field in super().get_readonly_fields(request, obj)]
        return fields if _is_superuser(request) else [*fields, *_PRIVILEGES]

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Return False also for an erased account, which a trigger leaves unchanged."""
        is_open = obj is None or obj.erased_at is None
        return super().has_change_permission(request, obj) and is_open and _may_manage(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_manage(request, obj)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002
        if request.method == "POST":
            require_recent_authentication(request)
        response: HttpResponse = super().user_change_password(request, id, form_url)
        if response.status_code == 302:
            if account := User.objects.filter(pk=id).first():
                pending_address.drop(account)
            record_staff_action(request, f"password set: account {id}")
        return response


@admin.register(Group)
class GroupAdmin(SensitiveAdminMixin, DjangoGroupAdmin):
    """Groups grant permissions, so only superusers change them."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return _is_superuser(request)


def _may_manage(request: HttpRequest, account: User | None) -> bool:
    return _is_superuser(request) or account is None or not (account.is_staff or account.is_superuser)


def _is_superuser(request: HttpRequest) -> bool:
    return bool(request.user.is_active and request.user.is_superuser)


@admin.register(SecurityEvent)
class SecurityEventAdmin(ReadOnlyAdmin):
    list_display = ["at", "kind", "name", "address", "detail"]
    list_filter = ["kind", "at"]
    search_fields = ["=name"]
    search_help_text = "A complete account name."

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("account")
