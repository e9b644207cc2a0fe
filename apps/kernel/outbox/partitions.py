"""Partitions: of the messages of one topic, one of each origin is claimed before a second.

Otherwise the mails that one client causes by the hundred would all be sent before the next one of another client.
"""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

ORIGIN_FIELD = "origin"
"""Of a message's body: what caused the message: a group of messages, perhaps followed by a slash and a part of it."""
PARTITIONS = 64
"""More would make the search for due messages longer: each partition with messages is searched separately."""


def partition_of(body: Mapping[str, Any]) -> int:
    """Return the partition of a message with this body: one of PARTITIONS by the group in its origin, or 0 without an
    origin. So one group in 64 has the same partition as another one."""
    group, _, _ = str(body.get(ORIGIN_FIELD, "")).partition("/")
    return crc32(group.encode()) % PARTITIONS if group else 0
