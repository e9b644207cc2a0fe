"""Rate limits: how many requests one address and one token may make.

    rate_limits.check_request(kind: str, address: str, token: str = "") -> float | None

It returns None if the request is allowed, otherwise the seconds after which to retry: the caller refuses with
`problems.RateLimited(wait)`, a 429 with that Retry-After. The call never waits or raises, and costs about a
microsecond. `kind` is one of KINDS; `kinds.kind_of(method, path)` returns the kind of a request (None: unlimited).
`address` is the result of `client_address.address_from_scope(scope)` or `address_from_environ(environ)`. `token`
identifies the client, preferably verified: the id of a queue entry or an account, or "" if there is none. Only its last
64 characters count, which in a signed token are the signature.

    rate_limits.check_work(kind: str, address: str, units: int) -> float | None

limits how much work the requests of one address may cause, as multiples of what most requests take.

    rate_limits.attempt_wait(kind, address, token) -> float | None    kind: "password", "account" or "code"
    rate_limits.record_attempt(kind, address, token) -> bool

limit failed attempts: the first returns the wait if no attempt is left, the second counts a failure, and returns
whether there was room for it. The kind "account-network" is a fifth of "account", for a token with its network.

A request is counted once: code that checks an ASGI request and then passes it on sets `scope[rate_limits.COUNTED]` to
True, so it is not checked again before the site, and the site does not check forwarded requests (`client_address`).

    rate_limits.begin()              start sharing this process's counts with the others through Redis
    rate_limits.forget_everything()  reset all counts (tests)

Each kind and subject has a bucket (`buckets`) in bounded memory in the process. A thread shares the counts of heavily
used buckets with the other processes, and reads their totals, several times a second (`sharing`). No request waits for
it; without Redis each process enforces the limits by itself.

**Limits fail open.** Except for those of failed attempts, they save work and protect nothing that PostgreSQL does not
protect itself. In doubt a request is allowed: with an unknown address, a bucket dropped for lack of memory, or without
Redis. A refusal changes nothing either: queue entries, reservations and orders stay, and a later retry finds them.
"""

from apps.kernel.rate_limits.limits import (
    KINDS,
    METRICS,
    Limits,
    attempt_wait,
    begin,
    check_request,
    check_work,
    end,
    forget_everything,
    network_of,
    record_attempt,
    share,
    site_of,
    subject,
)

COUNTED = "limits.counted"
__all__ = [
    "COUNTED",
    "KINDS",
    "METRICS",
    "Limits",
    "attempt_wait",
    "begin",
    "check_request",
    "check_work",
    "end",
    "forget_everything",
    "network_of",
    "record_attempt",
    "share",
    "site_of",
    "subject",
]
