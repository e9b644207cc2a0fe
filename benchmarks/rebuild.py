"""From the loss of Redis to its copy standing again, with a million waiting, and nobody in another place.

    python -m benchmarks.rebuild [--waiting 1000000] [--rounds 7]

Each round flushes the server and rebuilds by hand (`rebuild_queue`), with the order digested before and after; then
flushes it again and lets a poll heal it, and measures that poll. Medians of rounds.
"""

import argparse
import statistics
import time

from benchmarks.crowds import crowd, house, settle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with house():
        measure(options.waiting, options.rounds)


def measure(waiting: int, rounds: int) -> None:
    from apps.queue import board, rebuilding
    from ticketing.kernel import redis

    event = crowd("crowd", waiting)
    settle()
    rebuilt: list[float] = []
    checked: list[float] = []
    healed: list[float] = []
    orders = set()
    for _ in range(rounds):
        redis.client().flushall()
        done = rebuilding.rebuild(event.id)
        rebuilt.append(done.seconds)
        checked.append(done.checking_seconds)
        orders |= {done.before, done.after}
        redis.client().flushall()
        board.forget_everything()
        begun = time.perf_counter()
        board.of(event.id)
        healed.append(time.perf_counter() - begun)
        assert redis.client().exists(board.key(event.id))
    (order,) = orders
    print(f"{waiting:,} waiting, {order.places_count:,} places in the same order in every round: {order.digest[:16]}…")
    for what, seconds in (
        ("copy rebuilt by hand", rebuilt),
        ("copy rebuilt by the next poll", healed),
        ("order compared, before and after", checked),
    ):
        print(f"{what:<34} {statistics.median(seconds) * 1_000:9.1f} ms, worst {max(seconds) * 1_000:9.1f} ms")


if __name__ == "__main__":
    main()
