"""The gatekeeper: one leader among any number of processes (apps/kernel/db/leader_election.py) ticks the rooms.

Each leadership has a new epoch. If a former leader resumes in the middle of a tick, its epoch is lower than the room's
and it is refused under the room's lock.
"""

import logging
import os
import socket
import threading
import time

import psycopg
from django.db import DatabaseError, close_old_connections

from apps.kernel.db import sql
from apps.kernel.db.leader_election import Leadership, lock_session_options
from apps.kernel.observability import heartbeats
from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.queue.errors import StaleLeader
from apps.queue.room import admission, rate_control
from apps.queue.snapshot import room_snapshot

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25
OTHERS_SECONDS = 0.1
"""The part of a round for rooms that are full or sold out."""
ROUND_SECONDS_MAX = 60.0
"""Far above the time limits of a round's statements: a longer round hangs."""
SILENCE_MS_MAX = 1_500
"""A leader that has been silent for this time loses its leadership."""
LEADERSHIP = "gatekeeper"
LOCK_KEY = b"fairgate"
AWAY = "gatekeeper: the database is unavailable or ended the session"
STALE = "gatekeeper: the room snapshots are outdated"

_raise_epoch = sql.load("apps.queue", "raise_epoch")


class Gatekeeper:
    """One process's participation in the election, and its ticks while it leads."""

    def __init__(self, conninfo: str = "") -> None:
        self.lead = Leadership(LEADERSHIP, LOCK_KEY, conninfo=conninfo, options=lock_session_options(SILENCE_MS_MAX))
        self.epoch = 0
        """The epoch of its leadership; 0 while another process leads."""
        self._rate_controller = rate_control.RateController()
        self._repeated_errors = RepeatedErrors(logger)
        self._ticked_at: dict[int, float] = {}
        """The latest tick of each due room, on the process's monotonic clock."""

    @property
    def is_leader(self) -> bool:
        return self.epoch > 0

    def run_once(self) -> int:
        """Tick every due room if this process leads or can become leader; return how many visitors were admitted."""
        try:
            leads = self._hold_leadership()
            self._repeated_errors.over(AWAY)
            if not leads:
                return 0
            admitted = self._tick_rooms(admission.due_rooms())
            self._rate_controller.run_if_due(self.epoch, before_each=self.lead.send_heartbeat)
            self._publish_snapshots()
            return admitted
        except StaleLeader as error:
            logger.warning("gatekeeper: lost the leadership: %s", error)
            self.resign()
        except (psycopg.Error, DatabaseError) as error:
            self._repeated_errors.record_failure(AWAY, error)
            self.resign()
        return 0

    def _tick_rooms(self, due: admission.DueRooms) -> int:
        """Tick the rooms that can admit visitors, and as many of the others as OTHERS_SECONDS allow, those first that
        have waited longest; return how many visitors were admitted.

        The others are full or sold out. Hundreds of them would make a round so long that rooms in use lost a part of
        their rate.
        """
        admitted = sum(map(self._tick, due.first))
        until = time.monotonic() + OTHERS_SECONDS
        for event_id in sorted(due.others, key=lambda event_id: self._ticked_at.get(event_id, 0.0)):
            admitted += self._tick(event_id)
            if time.monotonic() > until:
                break
        known = {*due.first, *due.others}
        self._ticked_at = {event_id: at for event_id, at in self._ticked_at.items() if event_id in known}
        return admitted

    def _tick(self, event_id: int) -> int:
        self.lead.send_heartbeat()
        self._ticked_at[event_id] = time.monotonic()
        failing = f"gatekeeper: the tick of event {event_id} fails"
        try:
            admitted = admission.tick(event_id, self.epoch)
        except DatabaseError as error:
            # One room's error (a lock timeout, for example) delays no other; the next tick retries it.
            self._repeated_errors.record_failure(failing, error)
            return 0
        self._repeated_errors.over(failing)
        return admitted

    def resign(self) -> None:
        """Release the leadership, if held, so that another process can take it."""
        self.epoch = 0
        self.lead.resign()

    def _hold_leadership(self) -> bool:
        if not self.lead.holds():
            return False
        if not self.is_leader:
            assert self.lead.session is not None
            leader = f"{socket.gethostname()}:{os.getpid()}"[:120]
            with self.lead.session.cursor() as cursor:
                ((self.epoch,),) = _raise_epoch.rows(cursor, name=LEADERSHIP, leader=leader)
            logger.info("gatekeeper: %s leads, epoch %s", leader, self.epoch)
        return True

    def _publish_snapshots(self) -> None:
        """Copy the changed rooms' snapshots to Redis. A failure is harmless: readers use PostgreSQL instead."""
        try:
            room_snapshot.copy_to_redis(room_snapshot.rooms_to_copy())
        except DatabaseError as error:
            self._repeated_errors.record_failure(STALE, error)
        else:
            self._repeated_errors.over(STALE)


def loop(stopping: threading.Event) -> None:
    """Tick, or stand by, until `stopping` is set."""
    gatekeeper = Gatekeeper()
    errors = RepeatedErrors(logger)
    try:
        while not stopping.is_set():
            heartbeats.beat("ticker", ROUND_SECONDS_MAX)
            try:
                gatekeeper.run_once()
                errors.over("gatekeeper: this round failed")
            except Exception as error:  # noqa: BLE001 - The queue depends on this loop; it survives any error.
                errors.record_failure("gatekeeper: this round failed", error)
            finally:
                close_old_connections()
            stopping.wait(TICK_SECONDS)
    finally:
        gatekeeper.resign()
