"""Sessions in PostgreSQL under a digest of their key, so that a copy of the table gives no access to accounts.

Only the methods for threads are overridden: the async ones of the base class find no session.
"""

import hashlib
from typing import Any

from django.contrib.sessions.backends import db

from apps.kernel import clock

KEY_LENGTH = 40
"""The length of the table's column."""


def stored_key(session_key: str) -> str:
    """Return the key under which the session of this cookie is stored. The cookie's key is random, so its digest needs
    no secret."""
    return hashlib.sha256(session_key.encode()).hexdigest()[:KEY_LENGTH]


class SessionStore(db.SessionStore):
    def _get_session_from_db(self) -> Any:
        stored = self.model.objects.filter(expire_date__gt=clock.process_now())
        found = stored.filter(session_key=stored_key(self.session_key)).first() if self.session_key else None
        if found is None:
            self._session_key = None
        return found

    def exists(self, session_key: str) -> bool:
        return super().exists(stored_key(session_key))

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        row = super().create_model_instance(data)
        row.session_key = stored_key(row.session_key)
        return row

    def delete(self, session_key: str | None = None) -> None:
        key = session_key or self.session_key
        if key is not None:
            super().delete(stored_key(key))
