"""The routes of the fast path, collected from the apps. Django must be set up first."""

from apps.events.announcements import async_views as announcements
from apps.kernel.fastpath.dispatcher import Application, Dispatcher
from apps.orders.checkout import async_views as checkout
from apps.orders.order_pages import async_views as orders
from apps.queue import async_views as queue
from apps.reservations import async_views as reservations


def create_dispatcher(forward: Application) -> Dispatcher:
    """Return the ASGI application for HTTP, which forwards requests without a route."""
    routes = [*queue.ROUTES, *reservations.ROUTES, *checkout.ROUTES, *orders.ROUTES, *announcements.ROUTES]
    return Dispatcher(routes, forward=forward)
