"""The WSGI application of the site: pages, admin and the API, one blocking request per thread, in its own processes."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")

site = get_wsgi_application()

from ticketing import startup  # noqa: E402 - needs Django set up

application = startup.drain_request_body(site)
startup.begin("site")
# Without this, pages at saturation delayed polls by a tenth of a second; now pages wait for the fast path instead.
startup.lower_priority(settings.SITE_NICENESS)
