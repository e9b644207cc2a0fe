"""Leader election among processes of one kind: the leader holds an advisory lock in a session of its own.

The session is a direct connection (a pooler in transaction mode would share it). If the leader's process is killed, the
server ends the session and a stand-by gets the lock at its next attempt. If the process only hangs, the server ends the
session after a period of silence. An old leader that resumes may then still complete its current step: work that two
processes must not do at once needs another guard, such as the gatekeeper's epoch.
"""

import logging
from typing import Any

import psycopg
from django.conf import settings

from apps.kernel.db import sql

logger = logging.getLogger(__name__)

SILENCE_MS_MAX = 3_000
"""A leader that has sent nothing for this long has lost the leadership."""

_try_leadership = sql.load("apps.kernel", "try_leadership")
_keep_session_alive = sql.load("apps.kernel", "keep_session_alive")
_release_leadership = sql.load("apps.kernel", "release_leadership")


def lock_session_options(silence_ms_max: int = SILENCE_MS_MAX) -> str:
    """Return the options of a session that only holds the lock. Keep-alives detect a machine that has vanished, the
    idle timeout a process that hangs."""
    return (
        f"-c idle_session_timeout={silence_ms_max} -c tcp_keepalives_idle=1 "
        "-c tcp_keepalives_interval=1 -c tcp_keepalives_count=1 -c statement_timeout=1500"
    )


class Leadership:
    """One process's candidacy in an election. All candidates have the same name and the same eight-byte key."""

    def __init__(self, name: str, key: bytes, *, conninfo: str = "", options: str = "") -> None:
        self._name = name
        self._key = int.from_bytes(key, "big")
        self._conninfo = conninfo or settings.DATABASE_DIRECT_URL
        self._options = options or lock_session_options()
        self._has_lock = False
        self.session: psycopg.Connection[Any] | None = None

    def holds(self) -> bool:
        """Return whether this process leads; try to become leader if it does not. Called before each round. A leader
        leads until its session ends. Raises psycopg.Error, after which the process does not lead."""
        try:
            if self.session is None:
                self.session = psycopg.connect(
                    self._conninfo,
                    autocommit=True,
                    connect_timeout=2,
                    application_name=f"fairgate {self._name}",
                    options=self._options,
                )
            # A leader only sends a heartbeat: PostgreSQL would count a second acquisition of the lock separately.
            if self._has_lock:
                self.send_heartbeat()
            else:
                with self.session.cursor() as cursor:
                    ((self._has_lock,),) = _try_leadership.rows(cursor, key=self._key)
        except psycopg.Error:
            self.resign()
            raise
        return self._has_lock

    def send_heartbeat(self) -> None:
        """Keep the session alive, also in the middle of a long round. Raises psycopg.Error."""
        assert self.session is not None, "a leader has its session"
        with self.session.cursor() as cursor:
            _keep_session_alive.rows(cursor)

    def resign(self) -> None:
        """Give up the leadership; any other process may take it."""
        session, self.session, self._has_lock = self.session, None, False
        if session is None:
            return
        # The server notices a closed session only later; an explicit unlock frees the leadership at once.
        try:
            with session.cursor() as cursor:
                _release_leadership.rows(cursor)
        except psycopg.Error as error:
            logger.info("%s: its session had ended before it resigned: %s", self._name, error)
        finally:
            session.close()
