"""The crowd's calls, each app's own, and behind them what answers everything else. Needs Django set up."""

from apps.events.announcements import lane as announcements
from apps.queue import lane as queue
from apps.reservations import lane as reservations
from ticketing.kernel.lane.routes import Application, Lane


def lane_in_front_of(forward: Application) -> Lane:
    """An ASGI application for http."""
    return Lane([*queue.ROUTES, *reservations.ROUTES, *announcements.ROUTES], forward=forward)
