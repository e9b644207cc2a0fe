"""Permissions of members: `user.has_perm(permission, event)` answers from the user's roles at organizers.

Superusers and users with Django permissions of their own have these for all organizers. A member has the permissions
of its role for rows of its organizer only; without a row, the answer is whether the member has the permission at some
organizer, and the caller must confine what it shows (`admin_scope`).
"""

from typing import Any

from django.contrib.auth.backends import BaseBackend, ModelBackend

from apps.events.models.organizers import Membership, Organizer, Role
from apps.events.organizers.roles import ROLE_PERMISSIONS

_site_backend = ModelBackend()


def roles_of(user: Any) -> dict[int, Role]:
    """Return the user's roles by organizer id, read once for each user object, and so once for each request."""
    if not getattr(user, "is_active", False) or user.pk is None:
        return {}
    roles: dict[int, Role] | None = getattr(user, "_organizer_roles", None)
    if roles is None:
        rows = Membership.objects.filter(user_id=user.pk).values_list("organizer_id", "role")
        user._organizer_roles = roles = {organizer_id: Role(role) for organizer_id, role in rows}
    return roles


def list_memberships(user_id: int) -> dict[str, str]:
    """Return the roles of an account by the organizer's slug."""
    rows = Membership.objects.filter(user_id=user_id).order_by("organizer__slug")
    return dict(rows.values_list("organizer__slug", "role"))


def list_permitted_members(organizer_id: int, permission: str) -> list[int]:
    """Return the ids of the organizer's active members whose role has the permission."""
    roles = [role for role in Role if permission in ROLE_PERMISSIONS[role]]
    rows = Membership.objects.filter(organizer_id=organizer_id, role__in=roles, user__is_active=True)
    return list(rows.order_by("user_id").values_list("user_id", flat=True))


def is_member(user: Any) -> bool:
    """Return whether the user is an active member of an organizer."""
    return bool(roles_of(user))


def permitted_organizers(user: Any, permission: str) -> frozenset[int] | None:
    """Return the ids of the organizers at which the user has the permission; None for all organizers."""
    if user.is_active and (user.is_superuser or _site_backend.has_perm(user, permission)):
        return None
    return _organizers_by_role(user, permission)


def is_permitted(user: Any, permission: str, owned: Any) -> bool:
    """Return whether the user has the permission for this organizer, event or event view."""
    return bool(user.has_perm(permission, owned))


def _organizers_by_role(user: Any, permission: str) -> frozenset[int]:
    return frozenset(pk for pk, role in roles_of(user).items() if permission in ROLE_PERMISSIONS[role])


class MembershipBackend(BaseBackend):
    """Answers permissions from memberships. `obj` is an organizer, or has an `organizer_id`: an event, its view, a
    seating plan. For any other object the answer is no."""

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        if obj is None:
            return bool(_organizers_by_role(user_obj, perm))
        organizer_id = obj.pk if isinstance(obj, Organizer) else getattr(obj, "organizer_id", None)
        if organizer_id is None:
            return False
        permitted = permitted_organizers(user_obj, perm)
        return permitted is None or organizer_id in permitted

    def has_module_perms(self, user_obj: Any, app_label: str) -> bool:
        return any(
            permission.startswith(f"{app_label}.")
            for role in roles_of(user_obj).values()
            for permission in ROLE_PERMISSIONS[role]
        )
