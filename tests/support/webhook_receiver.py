"""A receiver of our webhooks: listens on loopback, records the requests, responds as configured."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class WebhookReceiver:
    url: str = ""
    status: int = 204
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    """Sent with each response."""
    silent: threading.Event | None = None
    """If set, responses wait for this event."""
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@contextmanager
def run_receiver() -> Iterator[WebhookReceiver]:
    """Run a receiver that responds 204 unless configured otherwise, and stop it afterwards."""
    listener = WebhookReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            listener.received.append((dict(self.headers.items()), body))
            if listener.silent is not None:
                listener.silent.wait(20)
            try:
                self.send_response(listener.status)
                for name, value in listener.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(listener.body)))
                self.end_headers()
                self.wfile.write(listener.body)
            except OSError:
                self.close_connection = True  # The sender has closed the connection, as some tests intend.

        def log_message(self, *about: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.url = f"http://127.0.0.1:{server.server_port}/hook?of=us"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        if listener.silent is not None:
            listener.silent.set()
        server.shutdown()
        thread.join(timeout=20)
        server.server_close()
