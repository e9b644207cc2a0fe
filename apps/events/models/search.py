"""The search index: an inverted index of all public events, and what staff edit about it.

Rows are written by `apps.events.search.index_writer` only, with the row of SearchState locked.
"""

from django.db import models


class SearchState(models.Model):
    """One row: the index's version, which rises with each change in the order of commits."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    version = models.BigIntegerField(default=0)
    generation = models.BigIntegerField(default=0, help_text="Rises when the index is rebuilt.")

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="search_state_is_one_row")]

    def __str__(self) -> str:
        return f"version {self.version}"


class SearchChange(models.Model):
    """An event whose rows have changed since it was indexed. Triggers write it in the transaction of the change."""

    event_id = models.BigIntegerField()

    def __str__(self) -> str:
        return f"event {self.event_id}"


class SearchDocument(models.Model):
    """A public event as the search knows it. Its number is its position in the index's sets."""

    number = models.PositiveIntegerField(primary_key=True)
    event_id = models.BigIntegerField(unique=True)
    is_live = models.BooleanField(default=True, help_text="Not deleted and not a draft.")
    starts_at = models.DateTimeField()
    starts_local = models.DateTimeField(help_text="The clock of the venue, as if it were UTC.")
    ends_sale_at = models.DateTimeField()
    opens_at = models.DateTimeField()
    is_canceled = models.BooleanField()
    city = models.CharField(max_length=120)
    price_minor = models.BigIntegerField(null=True, help_text="The lowest full price, in hundredths of the currency.")
    available = models.PositiveIntegerField(null=True, help_text="As reported; null: not reported yet.")
    accessible = models.PositiveIntegerField(default=0, help_text="Accessible seats, as reported.")
    trend = models.PositiveSmallIntegerField(default=0, help_text="0 to 8; 0 until views are counted.")
    digest = models.CharField(max_length=32, help_text="Of the postings.")
    text_version = models.BigIntegerField(help_text="The index's version when the postings last changed.")
    version = models.BigIntegerField(db_index=True, help_text="The index's version when the row last changed.")

    def __str__(self) -> str:
        return f"event {self.event_id}"


class SearchTerm(models.Model):
    """A word of the index in one language."""

    language = models.CharField(max_length=2)
    text = models.CharField(max_length=40, help_text="Folded: without case and diacritics.")
    stem = models.CharField(max_length=40)
    written = models.CharField(max_length=40, help_text="With diacritics, as first seen.")
    sound = models.CharField(max_length=12, help_text="Double Metaphone.")
    second_sound = models.CharField(max_length=12)
    document_count = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["language", "text"], name="search_term_once")]

    def __str__(self) -> str:
        return f"{self.text} ({self.language})"


class SearchPosting(models.Model):
    """One word of one event, with the weight of the most important text that has it."""

    pk = models.CompositePrimaryKey("term", "number")
    term = models.ForeignKey(SearchTerm, on_delete=models.CASCADE, related_name="+")
    number = models.PositiveIntegerField(db_index=True)
    weight = models.PositiveSmallIntegerField(help_text="10, 5, 3 or 1.")

    class Meta:
        # A search reads a term's postings from this index alone: those of one term are spread over the whole table.
        indexes = [models.Index(fields=["term", "weight", "number"], name="postings_of_terms")]

    def __str__(self) -> str:
        return f"term {self.term_id} in {self.number}"


class Synonym(models.Model):
    """Words and phrases that mean the same to the search."""

    words = models.CharField(
        max_length=400, unique=True, help_text="Separated by commas, as in movie, film, cinema. Phrases are allowed."
    )
    note = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["words"]

    def __str__(self) -> str:
        return self.words
