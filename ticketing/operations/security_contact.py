"""/.well-known/security.txt (RFC 9116): where to report a vulnerability of this installation."""

from datetime import timedelta
from urllib.parse import urljoin

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.http import require_safe

from apps.kernel import clock

VALID_DAYS = 90
"""RFC 9116 recommends less than a year. A copy that is older than this must not be trusted."""
PATH = ".well-known/security.txt"


@require_safe
def security_txt(request: HttpRequest) -> HttpResponse:
    """Return the contacts of SECURITY_CONTACT, in order of preference; 404 in plain text without that setting."""
    if not settings.SECURITY_CONTACT:
        return _respond("This site names no contact for security reports.", status=404)
    midnight = clock.process_now().replace(hour=0, minute=0, second=0, microsecond=0)
    lines = [f"Contact: {contact}" for contact in settings.SECURITY_CONTACT]
    lines.append(f"Expires: {midnight + timedelta(days=VALID_DAYS):%Y-%m-%dT%H:%M:%SZ}")
    lines.append(f"Canonical: {urljoin(settings.SITE_URL, f'/{PATH}')}")
    return _respond("\n".join(lines))


def _respond(text: str, status: int = 200) -> HttpResponse:
    return HttpResponse(f"{text}\n", status=status, content_type="text/plain; charset=utf-8")


root_urls = [path(PATH, security_txt, name="security_txt")]
