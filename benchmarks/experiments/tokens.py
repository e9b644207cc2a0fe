"""The cost of verifying one token: PyJWT, Fairgate's verifier, and an LRU cache of verified tokens, in one run.

    python -m benchmarks.experiments.tokens [--calls 20000] [--rounds 5]

Needs no server: the keys come from the settings. The figures are CPU time, the best of the alternating rounds. The LRU
cache is measured twice: with tokens seen before, and with more tokens than it holds, where it only adds cost.
"""

import argparse
import os
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from typing import Any

LRU_SIZE = 10_000
HOUR = timedelta(hours=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ.setdefault("SECRET_KEY", "public-key-of-all-benchmarks-never-use-elsewhere")
    # Connections to this port fail at once, so only the keys of the settings are used.
    os.environ["DATABASE_URL"] = "postgres://none:none@127.0.0.1:1/none"
    os.environ["DJANGO_SETTINGS_MODULE"] = "ticketing.settings"
    import django

    django.setup()
    measure(options.calls, options.rounds)


def measure(calls: int, rounds: int) -> None:
    import jwt

    from apps.kernel import clock
    from apps.kernel.tokens import jwt as own_jwt
    from apps.kernel.tokens import keys

    keys.REFRESH_SECONDS = float("inf")
    kinds = frozenset({"queue"})
    key = keys.signing_key(clock.process_now())
    tokens = [own_jwt.issue("queue", str(uuid.uuid4()), HOUR, "concert", num=number) for number in range(calls)]
    claims = {"typ": "queue", "sub": str(uuid.uuid4()), "aud": "concert", "iat": 1, "exp": 4_000_000_000, "num": 1}

    def library(token: str) -> Any:
        found = keys.find(jwt.get_unverified_header(token)["kid"])
        assert found is not None
        return jwt.decode(token, found.secret, algorithms=["HS256"], audience="concert")

    def own(token: str) -> Any:
        return own_jwt.verify(token, kinds, "concert")

    @lru_cache(maxsize=LRU_SIZE)
    def verified(token: str) -> own_jwt.Claims:
        return own_jwt.verify(token, kinds, "concert")

    def cached(token: str) -> Any:
        found = verified(token)
        assert found.values["exp"] > clock.process_now().timestamp()
        return found

    assert library(tokens[0]) == own(tokens[0]).values == cached(tokens[0]).values
    few = [tokens[number % (LRU_SIZE // 2)] for number in range(calls)]
    ways: dict[str, Callable[[], float]] = {
        "verify: PyJWT": lambda: microseconds(library, tokens),
        "verify: Fairgate": lambda: microseconds(own, tokens),
        "verify: LRU, all seen before": lambda: microseconds(cached, few),
        "verify: LRU, none seen before": lambda: (verified.cache_clear(), microseconds(cached, tokens))[1],
        "issue: PyJWT": lambda: microseconds(
            lambda _: jwt.encode(claims, key.secret, "HS256", {"kid": key.key_id}), tokens
        ),
        "issue: Fairgate": lambda: microseconds(
            lambda token: own_jwt.issue("queue", token[:36], HOUR, "concert", num=1), tokens
        ),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            best[name] = min(best[name], way())
    for name, cost in best.items():
        print(f"{name:<30} {cost:6.1f} µs")


def microseconds(act: Callable[[str], Any], tokens: list[str]) -> float:
    begun = time.thread_time()
    for token in tokens:
        act(token)
    return (time.thread_time() - begun) / len(tokens) * 1e6


if __name__ == "__main__":
    main()
