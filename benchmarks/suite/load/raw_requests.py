"""Encoded HTTP requests of visitors."""

import json
import secrets
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Sequence

_HOST = "Host: 127.0.0.1\r\n"


def get(path: str, token: str = "", *, accept_encoding: str = "", cookie: str = "") -> bytes:
    more = f"Accept-Encoding: {accept_encoding}\r\n" if accept_encoding else ""
    more += f"Cookie: {cookie}\r\n" if cookie else ""
    return f"GET {path} HTTP/1.1\r\n{_HOST}{_bearer(token)}{more}\r\n".encode()


def post(path: str, body: str, token: str = "", key: str = "") -> bytes:
    keyed = f"Idempotency-Key: {key}\r\n" if key else ""
    return (
        f"POST {path} HTTP/1.1\r\n{_HOST}{_bearer(token)}{keyed}Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def _bearer(token: str) -> str:
    return f"Authorization: Bearer {token}\r\n" if token else ""


def polls(tokens: Iterable[str]) -> list[bytes]:
    return [get("/api/events/line/queue/status", token) for token in tokens]


def joins(count: int) -> list[bytes]:
    """Return join requests, each of a new visitor."""
    run = secrets.token_hex(6)
    return [post("/api/events/line/queue", f'{{"visitor_id":"{run}-{n:08}"}}') for n in range(count)]


def general_admission_holds(event: str, floor: str, tokens: Iterable[str]) -> list[bytes]:
    run = secrets.token_hex(6)
    body = json.dumps({"ga_section": floor, "ga_quantity": 2}, separators=(",", ":"))
    path = f"/api/events/{event}/reservations"
    return [post(path, body, token, f"{run}-{n}") for n, token in enumerate(tokens)]


def seat_holds(event: str, section: str, seat_count: int, tokens: Sequence[str]) -> list[bytes]:
    """Return requests for two neighboring seats each, without overlap and spread over the section."""
    run = secrets.token_hex(6)
    path = f"/api/events/{event}/reservations"
    requests = []
    for n, (first, second) in enumerate(pairs(seat_count, len(tokens))):
        body = f'{{"seats":["{section}-{first}","{section}-{second}"]}}'
        requests.append(post(path, body, tokens[n], f"{run}-{n}"))
    return requests


def checkouts(reservations: Iterable[tuple[str, str]]) -> list[bytes]:
    """Return the checkouts of these reservations, given by id and token, each of a buyer with an address of its own."""
    run = secrets.token_hex(6)
    return [
        post(
            f"/api/reservations/{reservation}/checkout",
            f'{{"email":"buyer-{n}@example.org","name":"Buyer {n}"}}',
            token,
            f"{run}-{n}",
        )
        for n, (reservation, token) in enumerate(reservations)
    ]


def entry_of(token: str) -> str:
    """Return the queue entry of an admission token, without verifying it."""
    payload = token.split(".")[1]
    return str(json.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["sub"])


def pairs(seat_count: int, most: int) -> list[tuple[int, int]]:
    count = seat_count // 2
    spread = [SPREAD * n % count for n in range(min(count, most))]
    return [(2 * pair, 2 * pair + 1) for pair in spread]


SPREAD = 48_271
"""A prime: its multiples modulo a count that it does not divide visit every number below the count once."""
