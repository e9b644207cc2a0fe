"""One leader among any number of processes of one kind: whoever has the advisory lock, in a session of its own.

The session is a direct connection (a pooler in transaction mode would hand it to others). When the leader's process is
killed the server ends the session and a stand-by has the lock at its next try. When the process only hangs, the server
ends a session that has said nothing for a while. An old leader that wakes up may then still do what it was about to:
work that two must not do at once has more to prevent that, such as the gatekeeper's epoch.
"""

import logging
from typing import Any

import psycopg
from django.conf import settings

from apps.kernel.db import sql

logger = logging.getLogger(__name__)

SILENCE_MS_MAX = 3_000
"""A leader that has not spoken for so long leads no more."""

_PACKAGE = "apps.kernel"
_try_leadership = sql.load(_PACKAGE, "try_leadership")
_keep_leading = sql.load(_PACKAGE, "keep_leading")
_give_up_leadership = sql.load(_PACKAGE, "give_up_leadership")


def lock_session_options(silence_ms_max: int = SILENCE_MS_MAX) -> str:
    """Options of a session that only holds the lock. A machine that vanished without a word is found out by
    keep-alives, a process that hangs by silence."""
    return (
        f"-c idle_session_timeout={silence_ms_max} -c tcp_keepalives_idle=1 "
        "-c tcp_keepalives_interval=1 -c tcp_keepalives_count=1 -c statement_timeout=1500"
    )


class Leadership:
    """One process's part in the election of the leader of this name, by the lock of this key of eight bytes."""

    def __init__(self, name: str, key: bytes, *, conninfo: str = "", options: str = "") -> None:
        self._name = name
        self._key = int.from_bytes(key, "big")
        self._conninfo = conninfo or settings.DATABASE_DIRECT_URL
        self._options = options or lock_session_options()
        self._has_lock = False
        self.session: psycopg.Connection[Any] | None = None

    def holds(self) -> bool:
        """Whether this one leads, from now until its session ends; asked before each round. Raises psycopg.Error, after
        which it does not lead."""
        try:
            if self.session is None:
                self.session = psycopg.connect(
                    self._conninfo,
                    autocommit=True,
                    connect_timeout=2,
                    application_name=f"fairgate {self._name}",
                    options=self._options,
                )
            # A lock that is held is only spoken for: trying it again would count it twice.
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
        """The leader is alive, in the middle of a long round too. Raises psycopg.Error."""
        assert self.session is not None, "a leader has its session"
        with self.session.cursor() as cursor:
            _keep_leading.rows(cursor)

    def resign(self) -> None:
        """It does not lead, and whoever tries may."""
        session, self.session, self._has_lock = self.session, None, False
        if session is None:
            return
        # The server ends a closed session when it comes to it; said in so many words the lead is free at once.
        try:
            with session.cursor() as cursor:
                _give_up_leadership.rows(cursor)
        except psycopg.Error as error:
            logger.info("%s: its session had ended before it resigned: %s", self._name, error)
        finally:
            session.close()
