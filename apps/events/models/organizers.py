"""Organizers, who own events, and the roles of their members."""

from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import models, transaction
from django.db.models import Q

DEFAULT_SLUG, DEFAULT_NAME = "default", "Default organizer"

SHORT_NAME_HELP = "For links and ids: small letters, digits and hyphens. Made from the name."


class Organizer(models.Model):
    """Owns events and seating plans. Members act for it in the admin and at the doors."""

    slug = models.SlugField("short name", max_length=80, unique=True, help_text=SHORT_NAME_HELP)
    name = models.CharField(max_length=200, unique=True)
    contact_email = models.EmailField("contact email", blank=True, help_text="For buyers and for the site's operator.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class LegalPage(models.Model):
    """One version of an organizer's terms, privacy notice or imprint. A version is never changed; the latest one of a
    kind is current, and one without text and URL ends it. Orders name the versions that their buyers accepted."""

    class Kind(models.TextChoices):
        TERMS = "terms", "Terms"
        PRIVACY = "privacy", "Privacy"
        IMPRINT = "imprint", "Imprint"

    organizer = models.ForeignKey(Organizer, on_delete=models.CASCADE, related_name="legal_pages")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    text = models.TextField(blank=True, help_text="Plain text.")
    url = models.URLField(max_length=500, blank=True, help_text="The page elsewhere, instead of a text.")
    published_at = models.DateTimeField()
    published_by = models.CharField(max_length=150)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["organizer", "kind", "-id"], name="legal_page_latest")]
        constraints = [
            models.CheckConstraint(condition=Q(text="") | Q(url=""), name="legal_page_text_or_url"),
            models.CheckConstraint(condition=Q(kind__in=["terms", "privacy", "imprint"]), name="legal_page_has_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {self.organizer}, {self.published_at:%Y-%m-%d %H:%M}"


class Role(models.TextChoices):
    """What a member may do; the permissions of each role are in organizers/roles.py."""

    ORGANIZER = "organizer", "organizer"
    BOX_OFFICE = "box_office", "box office"
    DOOR = "door", "door"
    FINANCE = "finance", "finance"
    READ_ONLY = "read_only", "read-only"


class Membership(models.Model):
    """The role of one user at one organizer.

    Members are staff: the admin's access, and the rules for staff log-ins, go by `is_staff`. By itself it permits
    nothing. It ends with the last membership of a user without Django permissions.
    """

    organizer = models.ForeignKey(Organizer, on_delete=models.PROTECT, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=12, choices=Role.choices)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["organizer", "user"]
        constraints = [
            models.UniqueConstraint(fields=["organizer", "user"], name="membership_once"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_has_role"),
        ]

    def __str__(self) -> str:
        # Without the account's name: the text stays in logs after an erasure.
        return f"account {self.user_id} at {self.organizer}: {self.get_role_display()}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        with transaction.atomic():
            self._lock_user()
            super().save(*args, **kwargs)
            get_user_model()._default_manager.filter(pk=self.user_id, is_staff=False).update(is_staff=True)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        with transaction.atomic():
            self._lock_user()
            result = super().delete(*args, **kwargs)
            get_user_model()._default_manager.filter(
                pk=self.user_id, is_superuser=False, memberships=None, user_permissions=None, groups=None
            ).update(is_staff=False)
        return result

    def _lock_user(self) -> None:
        """Otherwise the end of one membership would not see another that is being added, and would end the user's
        staff status."""
        users = get_user_model()._default_manager.select_for_update(no_key=True)
        list(users.filter(pk=self.user_id).values_list("pk"))
