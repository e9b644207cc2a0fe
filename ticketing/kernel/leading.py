"""One leader among any number of processes of one kind: whoever has the advisory lock, in a session of its own.

As the gatekeeper's election (apps/queue/leading.py), for work that may be done twice for a moment without harm: there
is no epoch that fences an old leader off.
"""

import hashlib

import psycopg
from django.conf import settings

SILENCE_MS_MAX = 3_000
"""A leader that has not spoken for so long leads no more."""


class Lead:
    """One process's part in the election of the leader of this name."""

    def __init__(self, name: str, conninfo: str = "") -> None:
        self._name = name
        self._conninfo = conninfo
        self._key = int.from_bytes(hashlib.sha256(f"fairgate {name}".encode()).digest()[:8], "big", signed=True)
        self._session: psycopg.Connection | None = None
        self._has_lock = False

    def holds(self) -> bool:
        """Whether this one leads, from now until its session ends; asked before each round. Raises psycopg.Error, after
        which it does not lead."""
        try:
            if self._session is None:
                self._session = psycopg.connect(
                    self._conninfo or settings.DATABASE_DIRECT_URL,
                    autocommit=True,
                    connect_timeout=2,
                    application_name=f"fairgate {self._name}'s lead",
                    options=(
                        f"-c idle_session_timeout={SILENCE_MS_MAX} -c tcp_keepalives_idle=1 "
                        "-c tcp_keepalives_interval=1 -c tcp_keepalives_count=1 -c statement_timeout=1500"
                    ),
                )
            # A lock that is held is only spoken for: trying it again would count it twice.
            statement = "SELECT true" if self._has_lock else "SELECT pg_try_advisory_lock(%s)"
            row = self._session.execute(statement, None if self._has_lock else [self._key]).fetchone()
            self._has_lock = row is not None and row[0]
        except psycopg.Error:
            self._drop()
            raise
        return self._has_lock

    def resign(self) -> None:
        """Whoever tries may lead."""
        self._drop()

    def _drop(self) -> None:
        session, self._session, self._has_lock = self._session, None, False
        if session is not None:
            session.close()
