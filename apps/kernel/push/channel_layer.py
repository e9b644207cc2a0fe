"""The channel layer, and telling it something from a thread that has no loop."""

from collections.abc import Sequence
from typing import Any

from channels.layers import get_channel_layer
from channels_redis.pubsub import RedisPubSubChannelLayer
from redis import Redis

from apps.kernel import redis


class Layer(RedisPubSubChannelLayer):
    """channels_redis's own, which publishes also over a client that is at hand: `async_to_sync` would make a loop and a
    connection for each message."""

    def send_over(self, client: Redis, group: str, message: dict[str, Any]) -> None:
        """As `group_send`, for threads. May raise RedisUnavailable."""
        client.publish(f"{self._kwargs['prefix']}__group__{group}", self.serialize(message))


def send_to_groups(messages: Sequence[tuple[str, dict[str, Any]]]) -> bool:
    """Every process that listens to one of these groups hears its message, if Redis is there; whether it took them."""

    def publish(client: Redis) -> bool:
        layer = get_channel_layer()
        assert isinstance(layer, Layer)
        with client.pipeline(transaction=False) as pipe:
            for group, message in messages:
                layer.send_over(pipe, group, message)
            pipe.execute()
        return True

    return redis.attempt(publish) is True


def send_to_group(group: str, message: dict[str, Any]) -> bool:
    """The same of one."""
    return send_to_groups([(group, message)])
