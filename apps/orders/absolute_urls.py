"""URLs of this site with and without its origin (SITE_URL)."""

from urllib.parse import urljoin

from django.conf import settings


def absolute_url(path: str) -> str:
    """Return the path as an absolute URL, for mails, providers and API clients."""
    return urljoin(settings.SITE_URL, path)


def strip_site_origin(url: str) -> str:
    """Return the URL without this site's origin, so that a visitor on another host name of the site stays there."""
    origin = settings.SITE_URL.rstrip("/")
    return url.removeprefix(origin) if url.startswith(f"{origin}/") else url
