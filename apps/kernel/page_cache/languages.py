"""The language in which the site would render a page for a request."""

from functools import lru_cache

from django.conf import settings
from django.utils.translation import get_supported_language_variant
from django.utils.translation.trans_real import parse_accept_lang_header

from apps.kernel.fastpath.request import Request

_MIDDLEWARE = "django.middleware.locale.LocaleMiddleware"


def is_negotiated() -> bool:
    """Return whether pages are rendered in the language that the browser asks for."""
    return settings.USE_I18N and len(settings.LANGUAGES) > 1 and _MIDDLEWARE in settings.MIDDLEWARE


def language_of(request: Request) -> str:
    """Return the language as `LocaleMiddleware` chooses it: the cookie's, else the first one accepted, else the
    default; empty while all pages have the same language."""
    if not _is_negotiated_once():
        return ""
    accepted = request.headers.plain(b"accept-language") or b""
    return _choose(request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, ""), accepted)


@lru_cache(maxsize=1)
def _is_negotiated_once() -> bool:
    # Cached, because reading Django's settings costs as much as finding the page.
    return is_negotiated()


@lru_cache(maxsize=512)
def _choose(cookie: str, accepted: bytes) -> str:
    wanted = [cookie] if cookie else []
    for language, _ in parse_accept_lang_header(accepted.decode("latin-1")):
        if language == "*":
            break
        wanted.append(language)
    for language in wanted:
        try:
            return get_supported_language_variant(language)
        except LookupError:
            continue
    return get_supported_language_variant(settings.LANGUAGE_CODE)
