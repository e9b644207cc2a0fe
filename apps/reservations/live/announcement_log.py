"""The announcements of one event as known to this process, and which of them are new to its listeners."""

from dataclasses import dataclass, field

import msgspec

from apps.events import facade as events
from apps.kernel.push.frames import Frame, Key

POLL_SECONDS = 8.0
"""The interval of polling PostgreSQL: an announcement that the subscription lost arrives within ten seconds."""
SILENT_POLL_SECONDS = 2.0
"""The interval while the subscription is silent."""
SILENT_SECONDS = 1.2
INITIAL_COUNT = 3
"""The number of newest announcements sent to a new listener."""
KEPT_MAX = 60
"""The number of announcements, current and withdrawn, that one read loads."""


class _FrameVersion(msgspec.Struct):
    version: int


@dataclass(slots=True)
class AnnouncementLog:
    read_to: int = 0
    """The version up to which PostgreSQL was read; the subscription may have gaps."""
    polled_at: float = float("-inf")
    _sent: dict[Key, tuple[int, Frame]] = field(default_factory=dict)
    """The last version of each announcement and its frame, in the order of versions."""

    def is_due(self, now: float, received_at: float) -> bool:
        """Return whether it is time to poll again."""
        silent = now - received_at > SILENT_SECONDS
        return now - self.polled_at > (SILENT_POLL_SECONDS if silent else POLL_SECONDS)

    def latest_frames(self) -> list[Frame]:
        """Return the frames for a new listener, newest last."""
        return [frame for _, frame in list(self._sent.values())[-INITIAL_COUNT:]]

    def record_if_new(self, frame: Frame) -> bool:
        """Record the frame; return False if listeners already have this version or a later one."""
        version = msgspec.json.decode(frame.data, type=_FrameVersion).version
        last = self._sent.get(frame.key)
        if last is not None and last[0] >= version:
            return False
        self._sent.pop(frame.key, None)
        self._sent[frame.key] = (version, frame)
        kept = sorted(self._sent.items(), key=lambda one: one[1][0])[-KEPT_MAX:]
        self._sent = dict(kept)
        return True

    def read(self, feed: events.AnnouncementFeed) -> list[Frame]:
        """Record a read of PostgreSQL; return the frames that are new to listeners."""
        if feed.current.latest < self.read_to:
            self._sent.clear()  # PostgreSQL was restored to an earlier state.
        self.read_to = feed.current.latest
        frames = [
            Frame(Key(events.ANNOUNCEMENT_FRAME, str(one.announcement_id)), one.document())
            for one in reversed(feed.current.announcements)
        ]
        return [frame for frame in frames if self.record_if_new(frame)]
