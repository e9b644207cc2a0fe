"""Rate limits: how often one address and one token may ask, so that nobody's script takes what a crowd needs.

    rate_limits.check_request(kind: str, address: str, token: str = "") -> float | None

None: go on. Otherwise the seconds after which asking again is worth it: refuse with
`problems.RateLimited(wait)`, a 429 whose Retry-After says so. It waits for nothing and never raises; about a
microsecond. `kind` is one of KINDS, and `kinds.kind_of(method, path)` says which one a request is (None: not limited).
`address` is what `client_address.address_from_scope(scope)` or `address_from_environ(environ)` returned. `token` is
whatever names the one who asks, best after it was verified: the id of a place in line or an account, and "" where
nobody is named. Of a longer text the last 64 characters count, so that of a token it is the signature.

A request is counted once: who has asked about an ASGI request and then forwards it sets `scope[rate_limits.COUNTED]`
to True, and the forwarder does not ask again; the site believes the forwarder (`client_address`).

    rate_limits.begin()              this process shares what it counts with the others, through Redis, from now on
    rate_limits.forget_everything()  as if nobody had ever asked (tests)

How it counts: a bucket for each kind and subject (`buckets`), in bounded memory, here in the process. Twice to eight
times a second a thread tells Redis what those came to that are being used heavily, and learns what they came to in
all processes together (`sharing`). No request waits for it, and with Redis away each process keeps to the limits by
itself.

**Open, not closed.** Limits spare work; they guard nothing that the ledger does not guard itself. So in doubt one goes
on: an address that is not known, a bucket that had to be forgotten, Redis away. Nobody loses anything by a refusal
either: a place in line, a reservation and an order stay what they are, and whoever asks again later finds them.
"""

from apps.kernel.rate_limits.limits import KINDS, METRICS, Limits, begin, check_request, end, forget_everything, subject

COUNTED = "limits.counted"

__all__ = ["COUNTED", "KINDS", "METRICS", "Limits", "begin", "check_request", "end", "forget_everything", "subject"]
