"""A Redis server for a single test, which it can kill, empty or fill without affecting other tests."""

import os
import signal
from typing import Any

from apps.kernel import redis
from tests.support.servers import temporary_server_folder
from ticketing.devserver import valkey
from ticketing.devserver.servers import new_password


class OwnRedis:
    """A server for one test, shared by every process of the test."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._place, self._end = temporary_server_folder()
        self._password = new_password()
        self.start()

    def start(self, preferred_port: int | None = None) -> None:
        self.server = valkey.start(self._place, password=self._password, preferred_port=preferred_port)
        (default,) = self._settings.CACHES.values()
        self._settings.CACHES = {"default": {**default, "LOCATION": self.server.url}}

    def kill(self) -> None:
        os.kill(self.server.pid, signal.SIGKILL)

    def return_empty(self) -> None:
        self.start(self.server.port)
        redis.forget_outage()  # The pause of a second after an outage is over.

    def end(self) -> None:
        self._end()
