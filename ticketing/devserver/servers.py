"""Both servers of one folder, started and stopped together, with secrets that are kept across restarts."""

import json
import os
import secrets
import string
from dataclasses import dataclass

from ticketing.devserver import postgres, valkey
from ticketing.devserver.data_folder import ServerFolder
from ticketing.devserver.postgres import Postgres
from ticketing.devserver.valkey import Valkey

PASSWORD_CHARACTERS = 32
SECRET_NAMES = (
    "database_password",
    "superuser_password",
    "redis_password",
    "secret_key",
    "admin_password",
    "metrics_token",
)


@dataclass(frozen=True)
class Servers:
    postgres: Postgres | None
    valkey: Valkey | None

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in (self.postgres, self.valkey) if server]

    def stop(self) -> None:
        """Stop both servers."""
        if self.valkey:
            self.valkey.stop()
        if self.postgres:
            self.postgres.stop()


def new_password() -> str:
    """Return a random password of letters and digits, which is safe in URLs, SQL and configuration files."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(PASSWORD_CHARACTERS))


def keep_secrets(place: ServerFolder) -> dict[str, str]:
    """Return the folder's secrets, created by the first call and the same for every later one.

    They are stored beside the data, readable only by the user who started the servers.
    """
    path = place.folder / "secrets.json"
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        known = {}
    if all(known.get(name) for name in SECRET_NAMES):
        return {name: known[name] for name in SECRET_NAMES}
    made = {name: known.get(name) or new_password() for name in SECRET_NAMES}
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(made, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    return made


def start_disposable(place: ServerFolder, *, with_postgres: bool = True, with_valkey: bool = True) -> Servers:
    """Start new servers for tests, fast rather than durable, with everything in this folder."""
    cluster = copy = None
    if with_postgres:
        cluster = postgres.start(
            place,
            password=new_password(),
            superuser_password=new_password(),
            settings=postgres.DISPOSABLE,
        )
    if with_valkey:
        copy = valkey.start(place, password=new_password())
    return Servers(cluster, copy)
