"""Keeps the index of a process of the site read, so that no search waits for it: from its first request on, after a
rebuild, and after so many changes that the postings were forgotten."""

import logging
import threading
import time

from django.db import connection

from apps.events.search.memory import index
from apps.kernel.heavy_work import duty_cycle
from apps.kernel.observability.repeated_errors import RepeatedErrors

_errors = RepeatedErrors(logging.getLogger(__name__))

INTERVAL_SECONDS = 10.0
_FAILING = "the search index was not read before searches need it"


def begin_search_reader() -> None:
    """Start the thread, for as long as the process runs."""
    threading.Thread(target=_run, name="search-index", daemon=True).start()


def _run() -> None:
    while True:
        begun = time.monotonic()
        try:
            index.warm()
            _errors.over(_FAILING)
        except Exception as error:  # noqa: BLE001 - the next round tries again; searches read what they need themselves
            _errors.record_failure(_FAILING, error)
        finally:
            connection.close()
        time.sleep(max(INTERVAL_SECONDS, duty_cycle.pause_seconds(begun)))
