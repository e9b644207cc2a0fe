"""Redis, which may refuse but never grant, and may vanish at any moment: every caller catches RedisAway."""

from django_redis import get_redis_connection
from redis import Redis
from redis.exceptions import RedisError

RedisAway = RedisError


def client() -> Redis:
    """A pooled client with short time-outs. Whatever it does may raise RedisAway."""
    return get_redis_connection("default")
