"""The crowd's calls, each app's own, and behind them what answers everything else. Needs Django set up."""

from apps.events.announcements import async_views as announcements
from apps.kernel.fastpath.dispatcher import Application, Dispatcher
from apps.queue import async_views as queue
from apps.reservations import async_views as reservations


def create_dispatcher(forward: Application) -> Dispatcher:
    """An ASGI application for http."""
    return Dispatcher([*queue.ROUTES, *reservations.ROUTES, *announcements.ROUTES], forward=forward)
