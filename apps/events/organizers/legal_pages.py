"""The terms, privacy notice and imprint of an organizer, in versions."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from django.db import connection
from django.template.defaultfilters import linebreaks_filter
from django.urls import reverse
from django.utils.html import urlize
from django.utils.safestring import SafeString

from apps.events.models import LegalPage, Organizer
from apps.kernel import clock
from apps.kernel.db import sql, transactions

_current = sql.load("apps.events", "current_legal_pages")

TEXT_CHARACTERS_MAX = 100_000
KINDS = tuple(LegalPage.Kind)
_ACCEPTED = {LegalPage.Kind.TERMS: ("accept", "terms"), LegalPage.Kind.PRIVACY: ("have read", "privacy notice")}
"""What a buyer says at checkout about each page of these kinds."""


@dataclass(frozen=True, slots=True)
class AcceptedPage:
    kind: str
    path: str
    verb: str
    title: str


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms and the privacy notice that a buyer accepts at checkout. `version` names both rows, as in
    `terms-12.privacy-15`; a row never changes."""

    version: str
    organizer: str
    pages: tuple[AcceptedPage, ...]


class _CurrentPage(NamedTuple):
    id: int
    organizer_slug: str
    organizer_name: str


def current_page(organizer_id: int, kind: str) -> LegalPage | None:
    """Return the organizer's current page of this kind, or None if it has none."""
    page = LegalPage.objects.filter(organizer_id=organizer_id, kind=kind).order_by("-id").first()
    return page if page is not None and (page.text or page.url) else None


@lru_cache(maxsize=32)
def html_of(text: str) -> SafeString:
    """Return the text of a page as HTML, with paragraphs and links. It is kept, because a long text with thousands of
    addresses takes half a second."""
    return linebreaks_filter(urlize(text, nofollow=True, autoescape=True), autoescape=False)


LegalLink = dict[str, str]
"""`label` and `url` of a legal page."""


class Legal(NamedTuple):
    """What a page of the checkout says about the organizer's legal pages."""

    terms: Terms | None
    links: list[LegalLink]


def current_legal(organizer_id: int) -> Legal:
    """Return what a buyer accepts at checkout, and the links for the footer; one query."""
    found = _current_pages(organizer_id)
    return Legal(_terms_of(found), _links_of(found))


def current_terms(organizer_id: int) -> Terms | None:
    """Return what a buyer accepts at checkout, or None if the organizer has neither terms nor a privacy notice."""
    return _terms_of(_current_pages(organizer_id))


def _terms_of(found: Mapping[LegalPage.Kind, _CurrentPage]) -> Terms | None:
    ids = {kind: found[kind].id for kind in _ACCEPTED if kind in found}
    if not ids:
        return None
    page = next(iter(found.values()))
    pages = tuple(AcceptedPage(kind, page_path(page.organizer_slug, kind), *_ACCEPTED[kind]) for kind in ids)
    return Terms(".".join(f"{kind}-{pk}" for kind, pk in ids.items()), page.organizer_name, pages)


def page_path(slug: str, kind: str) -> str:
    return reverse("events:legal_page", args=[slug, kind])


def list_links(organizer_id: int) -> list[LegalLink]:
    """Return label and path of the organizer's current pages, for the footer of its pages; one query."""
    return _links_of(_current_pages(organizer_id))


def _links_of(found: Mapping[LegalPage.Kind, _CurrentPage]) -> list[LegalLink]:
    return links_of(next(iter(found.values())).organizer_slug, found) if found else []


def current_kinds(organizer_id: int) -> frozenset[str]:
    """Return the kinds of the organizer's current pages."""
    return frozenset(str(kind) for kind in _current_pages(organizer_id))


def links_of(slug: str, kinds: Container[str]) -> list[LegalLink]:
    """Return label and path of these kinds of pages of the organizer with this slug."""
    return [{"label": str(kind.label), "url": page_path(slug, kind)} for kind in KINDS if kind in kinds]


def _current_pages(organizer_id: int) -> dict[LegalPage.Kind, _CurrentPage]:
    """Return the current pages by kind."""
    with connection.cursor() as cursor:
        rows = _current.rows(cursor, organizer_id=organizer_id)
    return {LegalPage.Kind(kind): _CurrentPage(*page) for kind, *page in rows}


def publish_page(organizer: Organizer, kind: str, *, text: str, url: str, who: str) -> bool:
    """Publish a new version, from now on the current one. Return False if the current one has this content already.

    Two concurrent publications are stored one after the other; the later one is current. Joins the caller's
    transaction.
    """
    transactions.require_transaction()
    Organizer.objects.select_for_update(no_key=True).get(pk=organizer.pk)
    current = LegalPage.objects.filter(organizer=organizer, kind=kind).order_by("-id").first()
    if (current.text, current.url) == (text, url) if current is not None else not (text or url):
        return False
    LegalPage.objects.create(
        organizer=organizer, kind=kind, text=text, url=url, published_at=clock.now(), published_by=who
    )
    return True
