"""The routes of the fast path, collected from the apps, and the pages that it keeps. Django must be set up first."""

import re

from django.conf import settings

from apps.events.announcements import async_views as announcements
from apps.events.interest import async_views as interest
from apps.events.recents import async_views as recents
from apps.kernel.fastpath.dispatcher import Application, Dispatcher
from apps.orders.checkout import async_views as checkout
from apps.orders.feeds import async_views as feeds
from apps.orders.order_pages import async_views as orders
from apps.orders.provider_sync import async_views as webhooks
from apps.queue import async_views as queue
from apps.reservations import async_views as reservations


def create_dispatcher(forward: Application) -> Dispatcher:
    """Return the ASGI application for HTTP, which forwards requests without a route."""
    routes = [
        *queue.ROUTES, *reservations.ROUTES, *checkout.ROUTES, *orders.ROUTES, *webhooks.ROUTES, *announcements.ROUTES,
        *recents.ROUTES,
        *interest.ROUTES, *feeds.ROUTES,
    ]  # fmt: skip
    return Dispatcher(routes, forward=forward)


# Only these paths are looked up in the page cache: a request for any other page is never answered without its cookies.
_SHARED_PAGE = re.compile(
    r"/(?:|events/[-a-zA-Z0-9_]+/(?:|announcements/|plan\.json|poster\.svg)|sitemap\.xml|robots\.txt|favicon\.ico)"
    r"|/api/events(?:/[-a-zA-Z0-9_]+)?"
    rf"|{re.escape(settings.STATIC_URL)}(?!.*\.\.)[-a-zA-Z0-9_./]+"
)


def is_shared_page(path: str) -> bool:
    """Return whether the path is one of a page or file that is the same for every visitor (docs/operations/cdn.md)."""
    return _SHARED_PAGE.fullmatch(path) is not None
