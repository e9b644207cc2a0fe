"""A Stripe account for tests: the `local_stripe` server, payments by a buyer's browser, and webhook deliveries."""

import http.server
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import requests

SECRET, PUBLISHABLE, SIGNING = "sk_test_ours", "pk_test_ours", "whsec_ours"
PAYS, DECLINES = "4242424242424242", "4000000000000341"
ASKS_THEN_PAYS, ASKS_THEN_DECLINES = "4000002500003155", "4000008260003178"
WAIT_SECONDS_MAX = 20


@dataclass(slots=True)
class Delivery:
    raw: bytes
    headers: dict[str, str]

    @property
    def type(self) -> str:
        return str(json.loads(self.raw)["type"])


@dataclass(slots=True)
class Account:
    base: str
    delivered: "queue.Queue[Delivery]" = field(default_factory=queue.Queue)

    def call(self, method: str, path: str, **body: Any) -> Any:
        """Call the server with the account's keys, as the dashboard or a buyer's browser does."""
        response = requests.request(method, self.base + path, data=body or None, auth=(SECRET, ""), timeout=10)
        return response.json()

    def pay(self, client_secret: str, card: str = PAYS) -> Any:
        """Try to pay with this card, as Stripe's form does in the buyer's browser."""
        intent = intent_of(client_secret)
        card_fields = {"number": card, "exp_month": 12, "exp_year": 2090, "cvc": "123"}
        fields = {f"card[{name}]": value for name, value in card_fields.items()}
        method = self.call("POST", "/v1/payment_methods", type="card", **fields)
        self.call("POST", f"/v1/payment_intents/{intent}", payment_method=method["id"])
        return self.call("POST", f"/v1/payment_intents/{intent}/confirm")

    def prove(self, client_secret: str, is_them: bool) -> Any:
        """Complete the bank's 3-D Secure challenge, successfully or not."""
        path = f"/v1/payment_intents/{intent_of(client_secret)}/_authenticate"
        return self.call("POST", path, client_secret=client_secret, success=str(is_them).lower())

    def next_delivery(self, kind: str, intent: str) -> Delivery:
        """Return the next delivery of this kind about this intent, and drop all before it."""
        while True:
            delivery = self.delivered.get(timeout=WAIT_SECONDS_MAX)
            about = json.loads(delivery.raw)["data"]["object"]
            if delivery.type == kind and intent in (about["id"], about.get("payment_intent")):
                return delivery


def connect(account: Account, settings: Any) -> None:
    """Empty this account and configure it as the payment provider."""
    requests.delete(f"{account.base}/_config/data", timeout=10).raise_for_status()
    settings.PAYMENT_PROVIDER = "stripe"
    settings.STRIPE_SECRET_KEY = SECRET
    settings.STRIPE_PUBLISHABLE_KEY = PUBLISHABLE
    settings.STRIPE_WEBHOOK_SECRETS = [SIGNING]
    settings.STRIPE_API_BASE = account.base


def intent_of(client_secret: str) -> str:
    return client_secret.partition("_secret_")[0]


@contextmanager
def serving() -> Iterator[Account]:
    """Run a server; its deliveries are kept until a test processes them."""
    arguments = [sys.executable, "-m", "tests.processes.orders.local_stripe"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        account = Account(f"http://127.0.0.1:{json.loads(process.stdout.readline())}")
        receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _keeping(account))
        thread = threading.Thread(target=receiver.serve_forever, daemon=True)
        thread.start()
        try:
            address = f"http://127.0.0.1:{receiver.server_port}/"
            requests.post(
                f"{account.base}/_config/webhooks/ours", json={"url": address, "secret": SIGNING}, timeout=10
            ).raise_for_status()
            yield account
        finally:
            receiver.shutdown()
            receiver.server_close()
            process.terminate()


def _keeping(account: Account) -> type[http.server.BaseHTTPRequestHandler]:
    class Keep(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            account.delivered.put(Delivery(raw, dict(self.headers.items())))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    return Keep
