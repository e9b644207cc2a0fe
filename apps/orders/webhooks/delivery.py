"""Messages posted to organizers' addresses: signed, tried again with growing pauses, given up in the end, replayed.

Signatures follow Standard Webhooks (https://www.standardwebhooks.com). The older header, `Fairgate-Signature`, is
sent beside them for one release.
"""

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from datetime import UTC, datetime
from uuid import UUID

from django.conf import settings
from standardwebhooks import Webhook

from apps.kernel import clock, safe_http
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.orders.models import WebhookDelivery
from apps.orders.webhooks import messages

ATTEMPTS_MAX = 12
"""With pauses that double from ten seconds to two hours: over half a day."""
BACKOFF = outbox.exponential_backoff(10, 7_200)
CONCURRENT_MAX = 4
"""Of a process's deliverers: addresses of others may all be slow at once, and charges must not wait for them."""
SECONDS_MAX = 10.0
ANSWER_BYTES_MAX = 2_048
PAUSE_SECONDS = 10.0
"""An endpoint that could not be reached is left alone for so long, and the others have the deliverers."""
SIGNATURE_HEADER = "Fairgate-Signature"

_paused_until: dict[int, float] = {}
"""By endpoint, on the process's monotonic clock."""


_STANDARD_SECRET = re.compile(r"whsec_[A-Za-z0-9+/]{43}=")
"""What `new_secret` makes: 32 bytes in base64. Older secrets are 43 characters of URL-safe base64 without padding."""


def new_secret() -> str:
    """Returns a secret in the form of Standard Webhooks: `whsec_` and 32 random bytes in base64."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


def standard_secret(secret: str) -> str:
    """Returns the secret as a library of Standard Webhooks takes it.

    The text of an older secret, prefix included, was the HMAC key. Its bytes stay the key: they are put into base64
    behind `whsec_`. A library given the old text itself would decode something else.
    """
    if _STANDARD_SECRET.fullmatch(secret):
        return secret
    return f"whsec_{base64.b64encode(secret.encode()).decode()}"


def allowed_targets() -> safe_http.AddressPolicy:
    """What the operator allows beyond https to public addresses."""
    return safe_http.AddressPolicy(
        plain_http=settings.WEBHOOKS_OVER_HTTP, private_addresses=settings.WEBHOOKS_TO_PRIVATE_ADDRESSES
    )


def sign_standard(secret: str, message_id: str, body: bytes, moment: datetime) -> dict[str, str]:
    """Returns the three headers of Standard Webhooks. Every attempt has the same id and a moment of its own."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        # The library takes any moment for one in UTC.
        "webhook-signature": Webhook(standard_secret(secret)).sign(message_id, moment.astimezone(UTC), body.decode()),
    }


def sign(secret: str, body: bytes, moment: datetime) -> str:
    """Returns the value of `Fairgate-Signature`: the moment, and the HMAC-SHA256 over `moment.body`, keyed with the
    secret as it stands. Receivers refuse what is older than minutes."""
    when = int(moment.timestamp())
    digest = hmac.new(secret.encode(), f"{when}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={when},v1={digest}"


def deliver(message: outbox.Message) -> None:
    """The endpoint has answered 2xx, or the delivery says why not. The outbox's handler; what was received but could
    not be settled here is posted again, with the same `message_id`."""
    found = WebhookDelivery.objects.select_related("endpoint", "message").filter(pk=message.body["delivery"])
    delivery = found.first()
    if delivery is None or delivery.status != WebhookDelivery.Status.PENDING:
        return
    endpoint = delivery.endpoint
    if not endpoint.is_active:
        _record_attempt(delivery, None, "the endpoint is switched off", is_last=True)
        return
    left_seconds = _paused_until.get(endpoint.pk, 0.0) - time.monotonic()
    if left_seconds > 0:
        raise outbox.RetryLater(left_seconds, "the endpoint could not be reached a moment ago and rests")
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
        answer = safe_http.request(
            "POST",
            endpoint.url,
            headers,
            body,
            seconds_max=SECONDS_MAX,
            answer_bytes_max=ANSWER_BYTES_MAX,
            allowed=allowed_targets(),
        )
    except (safe_http.RequestFailed, safe_http.AddressRefused) as error:
        _paused_until[endpoint.pk] = time.monotonic() + PAUSE_SECONDS
        _record_attempt(delivery, None, str(error), is_last=is_last)
        raise outbox.NotDelivered(f"{endpoint.name}: {error}") from error
    is_taken = 200 <= answer.status < 300
    _record_attempt(delivery, answer.status, answer.body.decode("utf-8", "replace"), is_taken=is_taken, is_last=is_last)
    if not is_taken:
        raise outbox.NotDelivered(f"{endpoint.name} answered {answer.status}")


def _record_attempt(
    delivery: WebhookDelivery, status: int | None, answer: str, *, is_taken: bool = False, is_last: bool = False
) -> None:
    now = clock.now()
    delivery.attempts += 1
    delivery.answer_status, delivery.answer, delivery.attempted_at = status, answer.replace("\x00", ""), now
    if is_taken:
        delivery.status, delivery.delivered_at = WebhookDelivery.Status.DELIVERED, now
    elif is_last:
        delivery.status = WebhookDelivery.Status.GIVEN_UP
    with transactions.write():
        delivery.save(update_fields=["attempts", "answer_status", "answer", "attempted_at", "status", "delivered_at"])


def replay(delivery_id: int) -> bool:
    """The message is on its way to its endpoint once more, with all its attempts before it; False if it is on its way
    anyway, or gone. A delivery whose worker was lost in the last attempt says that it is pending, but nobody has it."""
    with transactions.write():
        ours = WebhookDelivery.objects.filter(pk=delivery_id)
        # Either update locks the row: who replays at the same moment waits for it, and then finds it on its way.
        was_settled = ours.exclude(status=WebhookDelivery.Status.PENDING).update(status=WebhookDelivery.Status.PENDING)
        if not was_settled and not ours.update(status=WebhookDelivery.Status.PENDING):
            return False
        delivery = ours.select_related("message").get()
        order_id: UUID = delivery.message.order_id
        if not was_settled and messages.is_queued(delivery, order_id):
            return False
        messages.publish_delivery(delivery, order_id)
        return True
