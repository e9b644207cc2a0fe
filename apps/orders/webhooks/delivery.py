"""Webhook deliveries to organizers' endpoints: sign and post messages, retry them with growing pauses, stop after the
last attempt, and replay deliveries for staff.

Signatures follow Standard Webhooks (https://www.standardwebhooks.com). The older header, `Fairgate-Signature`, is
also sent for one more release.
"""

import base64
import hashlib
import hmac
import json
import re
import secrets
from datetime import UTC, datetime
from uuid import UUID

from django.conf import settings
from standardwebhooks import Webhook

from apps.kernel import clock, safe_http
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.orders.models import WebhookDelivery, WebhookEndpoint
from apps.orders.webhooks import messages
from apps.orders.webhooks.endpoint_pauses import EndpointPauses

ATTEMPTS_MAX = 12
"""Pauses between attempts double from ten seconds up to two hours: almost five hours in all."""
BACKOFF = outbox.exponential_backoff(10, 7_200)
CONCURRENT_MAX = 4
"""Concurrent webhook deliveries per process: if all endpoints are slow at once, other threads still deliver charges."""
SECONDS_MAX = 10.0
ANSWER_BYTES_MAX = 2_048
SIGNATURE_HEADER = "Fairgate-Signature"

_pauses = EndpointPauses()

_STANDARD_SECRET = re.compile(r"whsec_[A-Za-z0-9+/]{43}=")
"""The form of `new_secret`: 32 bytes in base64. Older secrets are 43 characters of URL-safe base64 without padding."""


def new_secret() -> str:
    """Return a new secret in the Standard Webhooks form: `whsec_` and 32 random bytes in base64."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


def standard_secret(secret: str) -> str:
    """Return the secret in the form that Standard Webhooks libraries expect.

    The text of an older secret, prefix included, is the HMAC key. To keep that key, its bytes are encoded in base64
    after `whsec_`. From the old text itself a library would decode another key.
    """
    if _STANDARD_SECRET.fullmatch(secret):
        return secret
    return f"whsec_{base64.b64encode(secret.encode()).decode()}"


def allowed_targets() -> safe_http.AddressPolicy:
    """Return the operator's policy: whether plain HTTP and private addresses are allowed."""
    return safe_http.AddressPolicy(
        plain_http=settings.WEBHOOKS_OVER_HTTP, private_addresses=settings.WEBHOOKS_TO_PRIVATE_ADDRESSES
    )


def sign_standard(secret: str, message_id: str, body: bytes, moment: datetime) -> dict[str, str]:
    """Return the three headers of Standard Webhooks. All attempts share the id; each has its own timestamp."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        # The library treats every datetime as UTC.
        "webhook-signature": Webhook(standard_secret(secret)).sign(message_id, moment.astimezone(UTC), body.decode()),
    }


def sign(secret: str, body: bytes, moment: datetime) -> str:
    """Return the value of `Fairgate-Signature`: the timestamp, and the HMAC-SHA256 of `timestamp.body` with the
    secret's text as key. Receivers should refuse timestamps older than a few minutes."""
    timestamp = int(moment.timestamp())
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"


def deliver(message: outbox.Message) -> None:
    """Outbox handler: post the message and record the attempt in the delivery. If the process crashes between these two
    steps, the message is posted again, with the same `message_id`."""
    found = WebhookDelivery.objects.select_related("endpoint__event", "message").filter(pk=message.body["delivery"])
    delivery = found.first()
    if delivery is None or delivery.status != WebhookDelivery.Status.PENDING:
        return
    endpoint = delivery.endpoint
    if not endpoint.is_active:
        _record_attempt(delivery, None, "the endpoint is inactive", is_last=True)
        return
    body = json.dumps(delivery.message.body, separators=(",", ":")).encode()
    message_id, now = str(delivery.message_id), clock.now()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "fairgate",
        **sign_standard(endpoint.secret, message_id, body, now),
        "Fairgate-Message-Id": message_id,
        SIGNATURE_HEADER: sign(endpoint.secret, body, now),
    }
    is_last = message.attempts >= ATTEMPTS_MAX
    try:
        response = _post(endpoint, headers, body)
    except (safe_http.RequestFailed, safe_http.AddressRefused) as error:
        _record_attempt(delivery, None, str(error), is_last=is_last)
        raise outbox.NotDelivered(f"{endpoint.name}: {error}") from error
    is_accepted = 200 <= response.status < 300
    body_text = response.body.decode("utf-8", "replace")
    _record_attempt(delivery, response.status, body_text, is_accepted=is_accepted, is_last=is_last)
    if not is_accepted:
        raise outbox.NotDelivered(f"{endpoint.name} answered {response.status}")


def _post(endpoint: WebhookEndpoint, headers: dict[str, str], body: bytes) -> safe_http.Answer:
    """Post the body unless the endpoint is paused or its organizer may have no delivery now: then raise RetryLater."""
    owner_id = endpoint.owner_id
    begun_at, wait_seconds = _pauses.begin(endpoint.pk, owner_id)
    if wait_seconds > 0:
        raise outbox.RetryLater(wait_seconds, "the endpoint or its organizer was unreachable or slow a moment ago")
    is_answered = False
    try:
        response = safe_http.request(
            "POST",
            endpoint.url,
            headers,
            body,
            seconds_max=SECONDS_MAX,
            answer_bytes_max=ANSWER_BYTES_MAX,
            allowed=allowed_targets(),
        )
        is_answered = True
        return response
    finally:
        _pauses.end(endpoint.pk, owner_id, begun_at, is_answered=is_answered)


def _record_attempt(
    delivery: WebhookDelivery, status: int | None, response: str, *, is_accepted: bool = False, is_last: bool = False
) -> None:
    now = clock.now()
    delivery.attempts += 1
    delivery.answer_status, delivery.answer, delivery.attempted_at = status, response.replace("\x00", ""), now
    if is_accepted:
        delivery.status, delivery.delivered_at = WebhookDelivery.Status.DELIVERED, now
    elif is_last:
        delivery.status = WebhookDelivery.Status.GIVEN_UP
    with transactions.write():
        delivery.save(update_fields=["attempts", "answer_status", "answer", "attempted_at", "status", "delivered_at"])


def replay(delivery_id: int) -> bool:
    """Schedule the delivery again with a full set of attempts. Return False if it is queued already or was deleted. A
    delivery that is still `pending`, but has no queued message because its worker died in the last attempt, is
    scheduled too."""
    with transactions.write():
        rows = WebhookDelivery.objects.filter(pk=delivery_id)
        # Either update locks the row: a concurrent replay waits for it and then finds the delivery queued.
        was_settled = rows.exclude(status=WebhookDelivery.Status.PENDING).update(status=WebhookDelivery.Status.PENDING)
        if not was_settled and not rows.update(status=WebhookDelivery.Status.PENDING):
            return False
        delivery = rows.select_related("message").get()
        order_id: UUID = delivery.message.order_id
        if not was_settled and messages.is_queued(delivery, order_id):
            return False
        messages.publish_delivery(delivery, order_id)
        return True
