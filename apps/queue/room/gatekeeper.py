"""One leader among any number of gatekeepers (apps/kernel/db/leader_election.py), each time with a new epoch.

Should an old leader wake up in the middle of a tick, its epoch is older than the room's and it is refused under the
room's lock.
"""

import logging
import os
import socket
import threading

import psycopg
from django.db import DatabaseError, close_old_connections

from apps.kernel.db import sql
from apps.kernel.db.leader_election import Leadership, lock_session_options
from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.queue.errors import StaleLeader
from apps.queue.room import admission, rate_control
from apps.queue.snapshot import room_snapshot

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25
SILENCE_MS_MAX = 1_500
"""A leader that has not spoken for so long leads no more."""
LEADERSHIP = "gatekeeper"
LOCK_KEY = b"fairgate"
AWAY = "gatekeeper: the database is away or ended the session"
STALE = "gatekeeper: the boards are as of an earlier tick"

_raise_epoch = sql.load("apps.queue", "raise_epoch")


class Gatekeeper:
    """One gatekeeper's part in the election, and its ticks while it leads."""

    def __init__(self, conninfo: str = "") -> None:
        self.lead = Leadership(LEADERSHIP, LOCK_KEY, conninfo=conninfo, options=lock_session_options(SILENCE_MS_MAX))
        self.epoch = 0
        """Of its leadership; 0 while another leads."""
        self._rate_controller = rate_control.RateController()
        self._repeated_errors = RepeatedErrors(logger)

    @property
    def is_leader(self) -> bool:
        return self.epoch > 0

    def run_once(self) -> int:
        """Every room that is due has been ticked, if this one leads or could take the lead; how many were let in."""
        try:
            leads = self._hold_leadership()
            self._repeated_errors.over(AWAY)
            if not leads:
                return 0
            admitted = 0
            for event_id in admission.due_rooms():
                self.lead.send_heartbeat()
                failing = f"gatekeeper: the tick of event {event_id} fails"
                try:
                    admitted += admission.tick(event_id, self.epoch)
                except DatabaseError as error:
                    # One room's trouble (a lock that did not come, say) delays no other; the next tick tries again.
                    self._repeated_errors.record_failure(failing, error)
                else:
                    self._repeated_errors.over(failing)
            self._rate_controller.run_if_due(self.epoch, before_each=self.lead.send_heartbeat)
            self._publish_snapshots()
            return admitted
        except StaleLeader as error:
            logger.warning("gatekeeper: leads no more: %s", error)
            self.resign()
        except (psycopg.Error, DatabaseError) as error:
            self._repeated_errors.record_failure(AWAY, error)
            self.resign()
        return 0

    def resign(self) -> None:
        """It does not lead, and whoever tries may."""
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
        """What the ticks have done is on the boards. To fail at it costs nobody the lead: PostgreSQL is read
        instead."""
        try:
            room_snapshot.copy_to_redis(room_snapshot.rooms_to_copy())
        except DatabaseError as error:
            self._repeated_errors.record_failure(STALE, error)
        else:
            self._repeated_errors.over(STALE)


def loop(stopping: threading.Event) -> None:
    """Ticks, or stands by, until `stopping` is set."""
    gatekeeper = Gatekeeper()
    troubles = RepeatedErrors(logger)
    try:
        while not stopping.is_set():
            try:
                gatekeeper.run_once()
                troubles.over("gatekeeper: this round failed")
            except Exception as error:  # noqa: BLE001 - The line stands still without it: it outlives whatever it meets.
                troubles.record_failure("gatekeeper: this round failed", error)
            finally:
                close_old_connections()
            stopping.wait(TICK_SECONDS)
    finally:
        gatekeeper.resign()
