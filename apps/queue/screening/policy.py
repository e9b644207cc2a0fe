"""A room's settings for screening, cached by each process. A change is applied everywhere within about two seconds."""

from typing import NamedTuple

from apps.kernel.fastpath.cache import RefreshingCache
from apps.queue.models import WaitingRoom


class Policy(NamedTuple):
    when: str = WaitingRoom.Screening.OFF
    review_score: int | None = None

    @property
    def is_off(self) -> bool:
        return self.when == "off"


def _read(event_id: int) -> Policy:
    row = WaitingRoom.objects.filter(event_id=event_id).values_list("screening", "review_score").first()
    return Policy(*row) if row is not None else Policy()


policies: RefreshingCache[int, Policy] = RefreshingCache(_read, fresh_seconds=1, stale_seconds=1, most=1_000)
