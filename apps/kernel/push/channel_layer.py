"""The channel layer, and sending to its groups from a thread without an event loop."""

from collections.abc import Sequence
from typing import Any

from channels.layers import get_channel_layer
from channels_redis.pubsub import RedisPubSubChannelLayer
from redis import Redis

from apps.kernel import redis


class Layer(RedisPubSubChannelLayer):
    """The layer of channels_redis, which can also publish over an existing synchronous client.

    `async_to_sync(group_send)` would create an event loop and a connection for each message.
    """

    def send_over(self, client: Redis, group: str, message: dict[str, Any]) -> None:
        """Publish like `group_send`, from a thread. May raise RedisUnavailable."""
        client.publish(f"{self._kwargs['prefix']}__group__{group}", self.serialize(message))


def send_to_groups(messages: Sequence[tuple[str, dict[str, Any]]]) -> bool:
    """Send each message to its group, and return whether Redis accepted them."""

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
    """Send one message to one group, and return whether Redis accepted it."""
    return send_to_groups([(group, message)])
