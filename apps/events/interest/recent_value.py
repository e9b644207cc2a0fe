"""Values that pages need and that may be a minute old: each process reads them once a minute."""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from apps.kernel.fastpath.cache import register

Value = TypeVar("Value")


class RecentValue(Generic[Value]):
    """The result of `read`, read again when it is older than `seconds`. For threads."""

    def __init__(self, read: Callable[[], Value], seconds: float = 60.0) -> None:
        self._read = read
        self._seconds = seconds
        self._kept: tuple[float, Value] | None = None
        register(self)

    def get(self) -> Value:
        """Return the value. Blocks if it is read; raises the error of the read."""
        kept = self._kept
        if kept is None or time.monotonic() - kept[0] >= self._seconds:
            kept = self._kept = time.monotonic(), self._read()
        return kept[1]

    def clear(self) -> None:
        self._kept = None
