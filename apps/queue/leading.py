"""One leader among any number of gatekeepers: whoever has the advisory lock, in a session of its own.

The session is a direct connection (a pooler in transaction mode would hand it to others). When the leader's process is
killed the server ends the session and a stand-by has the lock at its next try. When the process only hangs, the server
ends a session that has said nothing for a while; should the old leader wake up in the middle of a tick, its epoch is
older than the room's and it is refused under the room's lock.
"""

import logging
import os
import socket
import threading

import psycopg
from django.conf import settings
from django.db import DatabaseError, close_old_connections

from apps.queue import admitting, board, pacing
from apps.queue.errors import Fenced
from ticketing.kernel import sql
from ticketing.kernel.troubles import Troubles

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25
SILENCE_MS_MAX = 1_500
"""A leader that has not spoken for so long leads no more."""
LEADERSHIP = "gatekeeper"
LOCK_KEY = int.from_bytes(b"fairgate", "big")
AWAY = "gatekeeper: the database is away or ended the session"
STALE = "gatekeeper: the boards are as of an earlier tick"

_PACKAGE = "apps.queue"
_try_leadership = sql.load(_PACKAGE, "try_leadership")
_raise_epoch = sql.load(_PACKAGE, "raise_epoch")
_give_up_leadership = sql.load(_PACKAGE, "give_up_leadership")
_keep_leading = sql.load(_PACKAGE, "keep_leading")


class Gatekeeper:
    """One gatekeeper's part in the election, and its ticks while it leads."""

    def __init__(self, conninfo: str = "") -> None:
        self._conninfo = conninfo or settings.DATABASE_DIRECT_URL
        self._session: psycopg.Connection | None = None
        self.epoch = 0
        """Of its leadership; 0 while another leads."""
        self._pacer = pacing.Pacer()
        self._troubles = Troubles(logger)

    @property
    def leads(self) -> bool:
        return self.epoch > 0

    def run_once(self) -> int:
        """Every room that is due has been ticked, if this one leads or could take the lead; how many were let in."""
        try:
            leads = self._keep_or_take_the_lead()
            self._troubles.over(AWAY)
            if not leads:
                return 0
            admitted = 0
            for event_id in admitting.due_rooms():
                self._speak()
                failing = f"gatekeeper: the tick of event {event_id} fails"
                try:
                    admitted += admitting.tick(event_id, self.epoch)
                except DatabaseError as error:
                    # One room's trouble (a lock that did not come, say) delays no other; the next tick tries again.
                    self._troubles.met(failing, error)
                else:
                    self._troubles.over(failing)
            self._pacer.run_if_due(self.epoch, before_each=self._speak)
            self._show()
            return admitted
        except Fenced as error:
            logger.warning("gatekeeper: leads no more: %s", error)
            self.resign()
        except (psycopg.Error, DatabaseError) as error:
            self._troubles.met(AWAY, error)
            self.resign()
        return 0

    def resign(self) -> None:
        """It does not lead, and whoever tries may."""
        self.epoch = 0
        session, self._session = self._session, None
        if session is None:
            return
        # The server ends a closed session when it comes to it; said in so many words the lead is free at once.
        try:
            with session.cursor() as cursor:
                _give_up_leadership.rows(cursor)
        except psycopg.Error as error:
            logger.info("gatekeeper: its session had ended before it resigned: %s", error)
        finally:
            session.close()

    def _keep_or_take_the_lead(self) -> bool:
        if self.leads:
            self._speak()
            return True
        if self._session is None:
            self._session = psycopg.connect(
                self._conninfo,
                autocommit=True,
                connect_timeout=2,
                application_name="fairgate gatekeeper",
                # A machine that vanished without a word is found out by keep-alives, a process that hangs by silence.
                options=(
                    f"-c idle_session_timeout={SILENCE_MS_MAX} -c tcp_keepalives_idle=1 "
                    "-c tcp_keepalives_interval=1 -c tcp_keepalives_count=1 -c statement_timeout=1500"
                ),
            )
        with self._session.cursor() as cursor:
            ((has_lock,),) = _try_leadership.rows(cursor, key=LOCK_KEY)
            if not has_lock:
                return False
            leader = f"{socket.gethostname()}:{os.getpid()}"[:120]
            ((self.epoch,),) = _raise_epoch.rows(cursor, name=LEADERSHIP, leader=leader)
        logger.info("gatekeeper: %s leads, epoch %s", leader, self.epoch)
        return True

    def _speak(self) -> None:
        assert self._session is not None, "a leader has its session"
        with self._session.cursor() as cursor:
            _keep_leading.rows(cursor)

    def _show(self) -> None:
        """What the ticks have done is on the boards. To fail at it costs nobody the lead: PostgreSQL is read
        instead."""
        try:
            board.copy(board.rooms_to_copy())
        except DatabaseError as error:
            self._troubles.met(STALE, error)
        else:
            self._troubles.over(STALE)


def loop(stopping: threading.Event) -> None:
    """Ticks, or stands by, until `stopping` is set."""
    gatekeeper = Gatekeeper()
    troubles = Troubles(logger)
    try:
        while not stopping.is_set():
            try:
                gatekeeper.run_once()
                troubles.over("gatekeeper: this round failed")
            except Exception as error:  # noqa: BLE001 - The line stands still without it: it outlives whatever it meets.
                troubles.met("gatekeeper: this round failed", error)
            finally:
                close_old_connections()
            stopping.wait(TICK_SECONDS)
    finally:
        gatekeeper.resign()
