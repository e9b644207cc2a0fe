"""The site: pages, admin and the API, one blocking request per thread, in a process group of its own."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")

site = get_wsgi_application()

from ticketing import serving  # noqa: E402 - needs Django set up

application = serving.hearing_out(site)
serving.begin("site")
