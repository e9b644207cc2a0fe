"""An organizer's program that receives messages: it records them, and accepts or refuses them."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from apps.kernel.safe_http import Answer, RequestFailed


@dataclass
class Organizer:
    """`at` is called with `("post", "before" | "after", message id)` around each request; an exception it raises is
    what our side sees."""

    url: str = "https://organizer.example/hook"
    at: Callable[[str, str, str], None] | None = None
    status: int = 204
    is_unreachable: bool = False
    received: dict[UUID, int] = field(default_factory=lambda: defaultdict(int))
    """How often it accepted each message, in the order of their first arrival."""

    def request(self, method: str, url: str, headers: Mapping[str, str], body: bytes, **limits: Any) -> Answer:
        """Stands in for `safe_http.request`."""
        message_id = headers["Fairgate-Message-Id"]
        self._reach("before", message_id)
        if self.is_unreachable:
            raise RequestFailed("connection refused")
        if self.status < 300:
            self.received[UUID(message_id)] += 1
        self._reach("after", message_id)
        return Answer(self.status, b"")

    def _reach(self, when: str, message_id: str) -> None:
        if self.at is not None:
            self.at("post", when, message_id)
