"""URLs of this site, with and without its own origin (SITE_URL)."""

from urllib.parse import urljoin

from django.conf import settings


def absolute_url(path: str) -> str:
    """Returns the path as an absolute URL, as mails, providers and API clients need it."""
    return urljoin(settings.SITE_URL, path)


def strip_site_origin(url: str) -> str:
    """The same address without this site's own origin, so that a visitor who came by another name of it stays there."""
    origin = settings.SITE_URL.rstrip("/")
    return url.removeprefix(origin) if url.startswith(f"{origin}/") else url
