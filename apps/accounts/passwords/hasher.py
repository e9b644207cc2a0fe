"""The password hasher: Django's own, with a limit on how many threads of a process hash at the same time."""

import threading

from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher

from apps.kernel.http import problems

RETRY_HEADER = "X-Fairgate-Hashing"
"""Set on the refusal, so that `web` repeats the request (`ticketing/server/password_queue.py`)."""


class HashingBusy(problems.Busy):
    title = "Many people are logging in right now. Try again in a moment."

    def headers(self) -> dict[str, str]:
        return {**super().headers(), RETRY_HEADER: "busy"}


_slots = threading.BoundedSemaphore(settings.PASSWORD_HASHES_MAX)


class BoundedPasswordHasher(PBKDF2PasswordHasher):
    """Hashes a password unless PASSWORD_HASHES_MAX threads of this process are doing so. A hash takes a few tenths of a
    second of processor time by design. A thread never waits for its turn: otherwise log-ins could occupy all threads of
    the site."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """Return the hash. Raises HashingBusy."""
        if not _slots.acquire(blocking=False):
            raise HashingBusy
        try:
            return super().encode(password, salt, iterations)
        finally:
            _slots.release()
