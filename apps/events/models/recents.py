"""The recent searches of accounts and browsers. Written by `apps.events.recents.history` and `archive` only, with the
row of SearchHistory locked."""

import uuid

from django.conf import settings
from django.db import models

TEXT_CHARACTERS_MAX = 100


class SearchHistory(models.Model):
    """An account or browser that has searched, or chosen not to have its searches saved.

    Each change of its searches raises `version` and sets a new `stamp`. A copy in Redis is valid only with this row's
    id, version and stamp.
    """

    owner = models.CharField(max_length=64, unique=True, help_text="account:ID, or browser: and an HMAC.")
    account = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    version = models.BigIntegerField(default=1)
    stamp = models.UUIDField(default=uuid.uuid4, help_text="Differs also from versions that a restored backup lost.")
    is_on = models.BooleanField(default=True, help_text="Searches are saved.")
    changed_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name = "history of searches"
        verbose_name_plural = "histories of searches"

    def __str__(self) -> str:
        return f"version {self.version}"


class RecentSearch(models.Model):
    """A saved search; a repeated search is one row, with the text as last typed."""

    history = models.ForeignKey(SearchHistory, on_delete=models.CASCADE, related_name="searches")
    digest = models.CharField(max_length=32, help_text="Of the text without case: the same for repeated searches.")
    text = models.CharField(max_length=TEXT_CHARACTERS_MAX)
    number = models.BigIntegerField(help_text="The history's version with this search; the newest has the highest.")
    searched_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name = "recent search"
        verbose_name_plural = "recent searches"
        constraints = [
            models.UniqueConstraint(fields=["history", "digest"], name="recent_search_once"),
            models.UniqueConstraint(fields=["history", "number"], name="recent_search_number_once"),
        ]

    def __str__(self) -> str:
        return self.text


class ArchivedSearch(models.Model):
    """A search of an account that became too old for the list: in exports only, until it is deleted."""

    history = models.ForeignKey(SearchHistory, on_delete=models.CASCADE, related_name="archived")
    text = models.CharField(max_length=TEXT_CHARACTERS_MAX)
    searched_at = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name = "archived search"
        verbose_name_plural = "archived searches"

    def __str__(self) -> str:
        return self.text
