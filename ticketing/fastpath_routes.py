"""The crowd's calls, each app's own, and behind them what answers everything else. Needs Django set up."""

from apps.events.announcements import async_views as announcements
from apps.kernel.fastpath.dispatcher import Application, Lane
from apps.queue import async_views as queue
from apps.reservations import async_views as reservations


def lane_in_front_of(forward: Application) -> Lane:
    """An ASGI application for http."""
    return Lane([*queue.ROUTES, *reservations.ROUTES, *announcements.ROUTES], forward=forward)
