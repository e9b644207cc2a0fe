"""Workers in processes of their own, which report each step before they take it.

`python -m tests.support.chaos.worker ADDRESS` runs them.

This process is set up once and forks a worker for each one wanted. Provider and organizers stay with whoever asked:
calls go there and back. A worker that is not told to go on waits, and may be killed there.
"""

import os
import signal
import sys
import threading
from multiprocessing.connection import Client, Connection
from typing import Any

import django


class Line:
    """To whoever wanted this worker. One speaks at a time, and nobody takes a step before it was let go."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection, self._lock = connection, threading.Lock()

    def ask(self, *said: Any) -> Any:
        with self._lock:
            self._connection.send(said)
            is_answer, value = self._connection.recv()
        if not is_answer:
            raise value
        return value

    def reach(self, step: str) -> None:
        self.ask("step", step)


class RemoteBooks:
    """The provider, as a worker sees it: what it does happens elsewhere, whatever becomes of the worker."""

    name = "books"

    def __init__(self, line: Line) -> None:
        self._line = line

    def __getattr__(self, call: str) -> Any:
        def ask(*args: Any) -> Any:
            self._line.reach(f"before {call}")
            answer = self._line.ask("call", call, args)
            self._line.reach(f"after {call}")
            return answer

        return ask


def announce_commits(line: Line) -> None:
    """From now on every connection says both sides of each commit."""
    from django.db.backends.signals import connection_created

    def watch(connection: Any, **about: Any) -> None:
        if "commit" in vars(connection):
            return
        commit = connection.commit

        def commit_in_steps() -> None:
            line.reach("before commit")
            commit()
            line.reach("after commit")

        connection.commit = commit_in_steps

    connection_created.connect(watch, weak=False)


def work(line: Line) -> None:
    """As `manage.py deliver_outbox` does, one message."""
    from django.conf import settings
    from django.core.management import call_command

    from apps.kernel import safe_http
    from apps.orders.payments import providers

    books: Any = RemoteBooks(line)
    settings.PAYMENT_PROVIDER = books.name
    providers._makers[books.name] = lambda: books
    safe_http.request = lambda method, url, headers, body, **limits: line.ask("post", method, url, dict(headers), body)
    announce_commits(line)
    with open(os.devnull, "w") as nowhere:
        call_command("deliver_outbox", "--limit", "1", stdout=nowhere)


def main() -> None:
    django.setup()
    address = sys.argv[1]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with Client(address) as wanted:
        wanted.send("ready")
        try:
            while wanted.recv() == "work":
                if os.fork() == 0:
                    line = Line(Client(address))
                    line.ask("pid", os.getpid())
                    work(line)
                    line.ask("done")
                    os._exit(0)
        except EOFError:
            pass  # Whoever wanted workers is gone.


if __name__ == "__main__":
    main()
