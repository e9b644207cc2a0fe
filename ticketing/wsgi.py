"""The WSGI application of the site: pages, admin and the API, one blocking request per thread, in its own processes."""

import os
import sys

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from ticketing import startup

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
startup.load_settings()

site = get_wsgi_application()

from apps.events import facade as events  # noqa: E402 - needs Django set up
from ticketing.server import site_turns  # noqa: E402 - the same

application = site_turns.leave_a_thread(site, settings.SITE_THREADS)
application = startup.watch_requests(startup.return_files_whole(startup.drain_request_body(application)))
application = startup.call_once(application, events.begin_search_reader)
startup.begin("site")
# While another thread makes a large page or plan, a thread waits so long for the interpreter lock after each answer of
# PostgreSQL. With Python's default of 5 ms, such pages of one client made those of others take seconds.
sys.setswitchinterval(0.001)
# Under saturation, pages wait for the fast path. With equal priority, they delayed polls by a tenth of a second.
startup.lower_priority(settings.SITE_NICENESS)
