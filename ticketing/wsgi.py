"""The site: pages, admin and the API, one blocking request per thread, in a process group of its own."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")

site = get_wsgi_application()

from ticketing import startup  # noqa: E402 - needs Django set up

application = startup.drain_request_body(site)
startup.begin("site")
# Pages at saturation made a poll wait for a tenth of a second; so it is the pages that wait for the crowd's calls.
startup.lower_priority(settings.SITE_NICENESS)
