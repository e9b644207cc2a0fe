"""pgbouncer in front of the test's database, configured as docs/operations/postgresql.md describes."""

import configparser
import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from django.db import connection

from tests.support.programs import PGBOUNCER
from tests.support.servers import enterable_folder
from tests.support.web_processes import CHECKOUT, wait_until
from ticketing.devserver.data_folder import choose_account
from ticketing.devserver.ports import LOOPBACK, free_port

END_SECONDS_MAX = 30
_DOCUMENTED = re.compile(r"^```ini\n(; /etc/pgbouncer/pgbouncer\.ini\n.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Pooler:
    url: str
    direct_url: str
    process: psutil.Popen

    def sessions(self) -> set[int]:
        """Return the backend process ids of its sessions with PostgreSQL."""
        ports = [each.laddr.port for each in self.process.net_connections("tcp") if each.status == "ESTABLISHED"]
        with psycopg.connect(self.direct_url) as session:
            rows = session.execute("SELECT pid FROM pg_stat_activity WHERE client_port = ANY (%s)", [ports])
            return {pid for (pid,) in rows}


@contextlib.contextmanager
def pooler(*, sessions: int, **settings: str) -> Iterator[Pooler]:
    """Run pgbouncer with a pool of `sessions` sessions, yield it once it answers, and stop it afterwards."""
    program, account = PGBOUNCER.find(), choose_account()
    assert program, PGBOUNCER.why_absent()
    database, port = connection.settings_dict, free_port()
    with tempfile.TemporaryDirectory(prefix="fairgate-pooler-", dir=enterable_folder(account)) as name:
        folder = Path(name)
        (folder / "userlist.txt").write_text(f'"{database["USER"]}" "{database["PASSWORD"]}"\n')
        wanted = documented()
        wanted["databases"] = {database["NAME"]: f"host={database['HOST']} port={database['PORT']}"}
        wanted["pgbouncer"].update(
            {
                "listen_addr": LOOPBACK,
                "listen_port": str(port),
                "auth_file": str(folder / "userlist.txt"),
                "logfile": str(folder / "log"),
                "default_pool_size": str(sessions),
                **settings,
            }
        )
        for left_out in ("unix_socket_dir", "pidfile"):
            wanted["pgbouncer"][left_out] = ""
        with open(folder / "pgbouncer.ini", "w") as file:
            wanted.write(file)
        if account:
            for path in (folder, *folder.iterdir()):
                os.chown(path, account.uid, account.gid)
        # pgbouncer refuses to run as root.
        account_options = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
        process = psutil.Popen([program, "-q", folder / "pgbouncer.ini"], **account_options)
        try:
            url, direct_url = (
                f"postgres://{database['USER']}:{quote(database['PASSWORD'])}@{LOOPBACK}:{each}/{database['NAME']}"
                for each in (port, database["PORT"])
            )
            wait_until(lambda: _is_ready(url), "pgbouncer answers", while_runs=process)
            yield Pooler(url, direct_url, process)
        finally:
            process.terminate()
            process.wait(END_SECONDS_MAX)


def documented() -> configparser.ConfigParser:
    """Return the configuration that docs/operations/postgresql.md gives."""
    found = _DOCUMENTED.findall((CHECKOUT / "docs" / "operations" / "postgresql.md").read_text())
    assert len(found) == 1, f"{len(found)} configurations of pgbouncer in docs/operations/postgresql.md"
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(found[0])
    return parser


def _is_ready(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
