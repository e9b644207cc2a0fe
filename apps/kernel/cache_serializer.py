"""The serializer of Django's cache. It decodes plain data only, so that a value in Redis can never run code."""

from typing import Any

import msgspec
from django_redis.exceptions import ConnectionInterrupted
from django_redis.serializers.base import BaseSerializer


class MsgpackSerializer(BaseSerializer):
    """Encodes plain data and bytes as MessagePack. A value in any other format is a miss."""

    def dumps(self, value: Any) -> bytes:
        """Return the value as MessagePack. Raises TypeError for a type that MessagePack lacks."""
        return msgspec.msgpack.encode(value)

    def loads(self, value: bytes) -> Any:
        """Return the value. The error for any other format is the one that IGNORE_EXCEPTIONS turns into a miss."""
        try:
            return msgspec.msgpack.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ConnectionInterrupted(connection=None) from error
