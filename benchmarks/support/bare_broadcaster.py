"""A minimal broadcaster for comparison with `benchmarks.scenarios.listeners`: an ASGI application under uvicorn, one
subscription to Redis, and a queue per connection."""

import asyncio
import os
from typing import Any

import uvicorn
from redis.asyncio import Redis

CHANNEL = "bare"
queues: set[asyncio.Queue[bytes]] = set()
_running: set[asyncio.Task[None]] = set()


async def broadcast() -> None:
    async with Redis.from_url(os.environ["REDIS_URL"]) as client, client.pubsub() as subscription:
        await subscription.subscribe(CHANNEL)
        async for message in subscription.listen():
            if message["type"] == "message":
                for queue in queues:
                    queue.put_nowait(message["data"])


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        _running.add(asyncio.create_task(broadcast()))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    queues.add(queue)
    try:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b": \n\n", "more_body": True})
        while True:
            await send({"type": "http.response.body", "body": await queue.get(), "more_body": True})
    finally:
        queues.discard(queue)


def main() -> None:
    uvicorn.run(
        application, port=int(os.environ["PORT"]), loop="uvloop", http="httptools", log_level="error", backlog=4096
    )


if __name__ == "__main__":
    main()
