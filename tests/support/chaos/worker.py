"""Workers in processes of their own, which report each step before they take it.

`python -m tests.support.chaos.worker ADDRESS` runs them.

This process is set up once and forks a worker on request. Provider and organizers stay in the test's process: calls are
sent there. A worker waits for permission before each step, and may be killed there.
"""

import os
import signal
import sys
import threading
from multiprocessing.connection import Client, Connection
from typing import Any

import django


class Channel:
    """The connection to the test. One request at a time; no step is taken before it is permitted."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection, self._lock = connection, threading.Lock()

    def ask(self, *message: Any) -> Any:
        with self._lock:
            self._connection.send(message)
            is_answer, value = self._connection.recv()
        if not is_answer:
            raise value
        return value

    def reach(self, step: str) -> None:
        self.ask("step", step)


class RemoteProvider:
    """The provider, as a worker sees it: its calls take effect in the test's process, whatever happens to the
    worker."""

    name = "fake"

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def __getattr__(self, call: str) -> Any:
        def ask(*args: Any) -> Any:
            self._channel.reach(f"before {call}")
            answer = self._channel.ask("call", call, args)
            self._channel.reach(f"after {call}")
            return answer

        return ask


def announce_commits(channel: Channel) -> None:
    """From now on every connection reports both sides of each commit, and sends its statements one by one: BEGIN and
    COMMIT are not in one round trip with others, as `transactions.write_batch` sends them."""
    from django.db.backends.signals import connection_created

    def watch(connection: Any, **about: Any) -> None:
        if "commit" in vars(connection):
            return
        commit = connection.commit

        def commit_in_steps() -> None:
            channel.reach("before commit")
            commit()
            channel.reach("after commit")

        connection.commit = commit_in_steps
        connection.execute_wrappers.append(lambda execute, *statement: execute(*statement))

    connection_created.connect(watch, weak=False)


def work(channel: Channel) -> None:
    """Deliver one message, as `manage.py deliver_outbox` does."""
    from django.conf import settings
    from django.core.management import call_command

    from apps.kernel import safe_http
    from apps.orders.payments import providers

    provider: Any = RemoteProvider(channel)
    settings.PAYMENT_PROVIDER = provider.name
    providers._makers[provider.name] = lambda: provider
    safe_http.request = lambda method, url, headers, body, **limits: channel.ask(
        "post", method, url, dict(headers), body
    )
    announce_commits(channel)
    with open(os.devnull, "w") as nowhere:
        call_command("deliver_outbox", "--limit", "1", stdout=nowhere)


def main() -> None:
    django.setup()
    address = sys.argv[1]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with Client(address) as control:
        control.send("ready")
        try:
            while control.recv() == "work":
                if os.fork() == 0:
                    channel = Channel(Client(address))
                    channel.ask("pid", os.getpid())
                    work(channel)
                    channel.ask("done")
                    os._exit(0)
        except EOFError:
            pass  # The test has ended.


if __name__ == "__main__":
    main()
