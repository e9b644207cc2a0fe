"""What a process knows of one event's announcements, and which of them are new to its listeners."""

from dataclasses import dataclass, field

import msgspec

from apps.events import facade as events
from apps.kernel.push.frames import Frame, Key

POLL_SECONDS = 8.0
"""So often PostgreSQL is asked whether one did not come over the subscription: whatever is lost is told within ten."""
SILENT_POLL_SECONDS = 2.0
"""The same while nothing comes over it."""
SILENT_SECONDS = 1.2
INITIAL_COUNT = 3
"""So many, the newest versions, are told whoever begins to listen."""
KEPT_MAX = 60
"""As many as are at hand: those that stand and those that were taken back."""


class _FrameVersion(msgspec.Struct):
    version: int


@dataclass(slots=True)
class AnnouncementLog:
    read_to: int = 0
    """The number up to which PostgreSQL was read; what came over the subscription may have holes."""
    asked_at: float = float("-inf")
    _sent: dict[Key, tuple[int, Frame]] = field(default_factory=dict)
    """By announcement its last version and that one's frame, in the order of versions."""

    def is_due(self, now: float, heard_at: float) -> bool:
        """Whether it is time to ask again."""
        silent = now - heard_at > SILENT_SECONDS
        return now - self.asked_at > (SILENT_POLL_SECONDS if silent else POLL_SECONDS)

    def latest_frames(self) -> list[Frame]:
        """What those are told who come now, the newest last."""
        return [frame for _, frame in list(self._sent.values())[-INITIAL_COUNT:]]

    def record_if_new(self, told: Frame) -> bool:
        """Whether listeners have neither this version nor a later one; from now on they have."""
        version = msgspec.json.decode(told.data, type=_FrameVersion).version
        last = self._sent.get(told.key)
        if last is not None and last[0] >= version:
            return False
        self._sent.pop(told.key, None)
        self._sent[told.key] = (version, told)
        kept = sorted(self._sent.items(), key=lambda one: one[1][0])[-KEPT_MAX:]
        self._sent = dict(kept)
        return True

    def read(self, feed: events.AnnouncementFeed) -> list[Frame]:
        """PostgreSQL says this; what of it listeners have not been told."""
        if feed.current.latest < self.read_to:
            self._sent.clear()  # PostgreSQL was restored to an earlier state.
        self.read_to = feed.current.latest
        frames = [
            Frame(Key(events.ANNOUNCEMENT_FRAME, str(one.announcement_id)), one.document())
            for one in reversed(feed.current.announcements)
        ]
        return [frame for frame in frames if self.record_if_new(frame)]
