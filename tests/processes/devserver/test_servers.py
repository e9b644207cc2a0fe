"""The embedded servers start from scratch and from the remains of a killed run, and never on resources of others."""

import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from redis import AuthenticationError, Redis

from tests.support.servers import CHECKOUT, environment_without_run
from ticketing.devserver import data_folder, postgres, valkey
from ticketing.devserver.data_folder import Account, ServerFolder, ServersFailed, create_folder, prepare_folder
from ticketing.devserver.ports import free_port, is_free
from ticketing.devserver.postgres import DISPOSABLE, Postgres
from ticketing.devserver.processes import wait_gone
from ticketing.devserver.servers import keep_secrets

IS_ROOT = os.geteuid() == 0
WAIT_SECONDS_MAX = 30
PASSWORDS = {"password": "Secret1", "superuser_password": "Secret2"}


def start(server_folder: ServerFolder, preferred_port: int | None = None, **passwords: str) -> Postgres:
    return postgres.start(
        server_folder, **{**PASSWORDS, **passwords}, settings=DISPOSABLE, preferred_port=preferred_port
    )


def ask(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def processes_of(server_folder: ServerFolder) -> list[psutil.Process]:
    return [*postgres._processes_of(server_folder), *valkey._processes_of(server_folder)]


def kill_everything(server_folder: ServerFolder, *, but: int | None = None) -> None:
    def doomed() -> list[psutil.Process]:
        return [process for process in processes_of(server_folder) if process.pid != but]

    for process in doomed():
        with suppress(psutil.NoSuchProcess):  # A backend ends by itself with its postmaster.
            process.kill()
    assert wait_gone(doomed, WAIT_SECONDS_MAX)


def test_postgresql_18_runs_on_loopback_behind_scram_with_utc(server_folder: ServerFolder) -> None:
    cluster = start(server_folder)
    assert str(ask(cluster.url(), "SHOW server_version")).startswith("18.")
    assert ask(cluster.url(), "SHOW listen_addresses") == "127.0.0.1"
    assert ask(cluster.superuser_url(), "SHOW unix_socket_directories") == ""
    assert ask(cluster.url(), "SHOW timezone") == "UTC"
    assert ask(cluster.superuser_url(), "SHOW password_encryption") == "scram-sha-256"
    rules = (server_folder.postgres_data / "pg_hba.conf").read_text()
    assert "trust" not in [word for line in rules.splitlines() if not line.startswith("#") for word in line.split()]
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        ask(cluster.url().replace("Secret1", "guessed"), "SELECT 1")


def test_the_database_owner_can_create_databases_but_is_no_superuser(server_folder: ServerFolder) -> None:
    cluster = start(server_folder)
    assert ask(cluster.url(), "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    ask(cluster.url(), "CREATE DATABASE another")
    assert ask(cluster.url("another"), "SELECT current_database()") == "another"


def test_the_demo_settings_survive_a_power_failure(server_folder: ServerFolder) -> None:
    cluster = postgres.start(server_folder, **PASSWORDS)
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert ask(cluster.url(), f"SHOW {setting}") == "on"
    assert int(str(ask(cluster.url(), "SHOW max_connections"))) >= 100


def test_valkey_9_requires_its_password_and_persists_nothing(server_folder: ServerFolder) -> None:
    copy = valkey.start(server_folder, password="Secret3")
    with Redis.from_url(copy.url, decode_responses=True) as client:
        assert client.info("server")["valkey_version"].startswith("9.")
        assert client.config_get("bind")["bind"] == "127.0.0.1"
        assert client.config_get("save")["save"] == ""
        assert client.config_get("appendonly")["appendonly"] == "no"
    with Redis.from_url(copy.url.replace("Secret3", "guessed")) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()


def test_no_server_runs_as_root_and_other_users_cannot_read_its_folder(server_folder: ServerFolder) -> None:
    cluster, copy = start(server_folder), valkey.start(server_folder, password="Secret3")
    for pid in (cluster.pid, copy.pid):
        uid = psutil.Process(pid).uids().effective
        assert uid != 0
        assert uid == (server_folder.account.uid if server_folder.account else os.geteuid())
    assert server_folder.folder.stat().st_mode & 0o077 == 0
    assert server_folder.postgres_data.stat().st_mode & 0o077 == 0


def test_no_password_appears_on_a_command_line(server_folder: ServerFolder) -> None:
    cluster, copy = start(server_folder), valkey.start(server_folder, password="Secret3")
    for pid in (cluster.pid, copy.pid):
        assert "Secret" not in " ".join(psutil.Process(pid).cmdline())


def test_after_a_stop_no_process_is_left_and_the_next_start_has_the_data(server_folder: ServerFolder) -> None:
    cluster = start(server_folder)
    valkey.start(server_folder, password="Secret3")
    ask(cluster.url(), "CREATE TABLE kept AS SELECT 42 AS number")
    valkey.stop(server_folder)
    cluster.stop()
    assert processes_of(server_folder) == []
    assert is_free(cluster.port)
    again = start(server_folder, preferred_port=cluster.port)
    assert again.port == cluster.port
    assert ask(again.url(), "SELECT number FROM kept") == 42


def test_after_kill_9_the_next_start_has_all_committed_data(server_folder: ServerFolder) -> None:
    cluster = postgres.start(server_folder, **PASSWORDS)
    valkey.start(server_folder, password="Secret3")
    ask(cluster.url(), "CREATE TABLE kept AS SELECT 42 AS number")
    kill_everything(server_folder)
    assert (server_folder.postgres_data / "postmaster.pid").exists()
    again = postgres.start(server_folder, **PASSWORDS)
    assert ask(again.url(), "SELECT number FROM kept") == 42
    with Redis.from_url(valkey.start(server_folder, password="Secret3").url) as client:
        assert client.dbsize() == 0


def test_servers_left_running_by_a_killed_run_are_replaced(server_folder: ServerFolder) -> None:
    left = start(server_folder), valkey.start(server_folder, password="Secret3")
    new = start(server_folder), valkey.start(server_folder, password="Secret3")
    assert {server.pid for server in left}.isdisjoint(server.pid for server in new)
    running = {process.pid for process in processes_of(server_folder)}
    assert {server.pid for server in new} <= running
    assert {server.pid for server in left}.isdisjoint(running)


def test_orphans_of_a_killed_postmaster_do_not_prevent_the_next_start(server_folder: ServerFolder) -> None:
    cluster = start(server_folder)
    with psycopg.connect(cluster.url()) as connection:
        os.kill(cluster.pid, 9)
        again = start(server_folder)
        assert ask(again.url(), "SELECT 1") == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_a_pid_file_that_names_another_process_does_not_prevent_a_start(server_folder: ServerFolder) -> None:
    cluster = start(server_folder)
    bystander = valkey.start(server_folder, password="Secret3")
    pid_file = server_folder.postgres_data / "postmaster.pid"
    lines = pid_file.read_text().splitlines(keepends=True)
    kill_everything(server_folder, but=bystander.pid)
    # As after a reboot: the process id now belongs to another program of the same account.
    pid_file.write_text("".join([f"{bystander.pid}\n", *lines[1:]]))
    assert ask(start(server_folder).url(), "SELECT 1") == 1
    assert psutil.Process(bystander.pid).is_running()
    assert cluster.pid != bystander.pid


def test_a_port_in_use_is_left_to_its_owner(server_folder: ServerFolder) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        taken = holder.getsockname()[1]
        assert start(server_folder, preferred_port=taken).port != taken
        assert valkey.start(server_folder, password="Secret3", preferred_port=taken).port != taken


def test_a_port_that_is_taken_at_the_last_moment_is_replaced_by_another(
    server_folder: ServerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        taken = holder.getsockname()[1]
        offered = [taken, free_port(), taken, free_port()]
        for module in (postgres, valkey):
            monkeypatch.setattr(module, "free_port", lambda preferred=None: offered.pop(0))
        assert start(server_folder).port != taken
        assert valkey.start(server_folder, password="Secret3").port != taken
        assert offered == []


def test_a_cluster_whose_passwords_were_lost_keeps_its_data_and_gets_new_ones(server_folder: ServerFolder) -> None:
    cluster = start(server_folder)
    ask(cluster.url(), "CREATE TABLE kept AS SELECT 42 AS number")
    cluster.stop()
    again = start(server_folder, password="New1", superuser_password="New2")
    assert ask(again.url(), "SELECT number FROM kept") == 42
    with pytest.raises(psycopg.OperationalError):
        ask(again.superuser_url().replace("New2", "Secret2"), "SELECT 1")


def test_a_cluster_left_incomplete_by_a_killed_run_is_created_again(server_folder: ServerFolder) -> None:
    half = server_folder.folder / "postgres.unfinished"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    assert ask(start(server_folder).url(), "SELECT 1") == 1
    assert not half.exists()


def test_secrets_are_created_once_and_not_readable_by_others(server_folder: ServerFolder) -> None:
    secrets = keep_secrets(server_folder)
    assert keep_secrets(server_folder) == secrets
    assert len(set(secrets.values())) == len(secrets)
    assert (server_folder.folder / "secrets.json").stat().st_mode & 0o777 == 0o600
    (server_folder.folder / "secrets.json").write_text("{broken")
    assert keep_secrets(server_folder).keys() == secrets.keys()


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        data_folder.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 5_000_000)
    )
    with pytest.raises(ServersFailed, match=r"has 5 MB of disk left; the servers need \d+ MB$"):
        create_folder(tmp_path / "servers", None)


def test_a_program_that_runs_out_of_disk_is_reported_in_one_line() -> None:
    output = (
        "creating files ... \ninitdb: error: could not write: No space left on device\ninitdb: removing directory\n"
    )
    assert data_folder.find_error_line(output) == "initdb: error: could not write: No space left on device"


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    stranger = Account("stranger", os.geteuid() + 4242, os.getegid())
    with pytest.raises(ServersFailed, match="belongs to user id"):
        create_folder(tmp_path / "servers", stranger)
    (tmp_path / "link").symlink_to(tmp_path / "servers")
    with pytest.raises(ServersFailed, match="belongs to user id"):
        create_folder(tmp_path / "link", None)


@pytest.mark.skipif(not IS_ROOT, reason="only root runs the servers under another account")
def test_a_checkout_that_others_cannot_enter_keeps_its_servers_elsewhere(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    checkout = closed / "checkout"
    checkout.mkdir()
    modes = {path: path.stat().st_mode for path in (tmp_path, closed, checkout)}
    server_folder = prepare_folder(checkout)
    try:
        assert server_folder.folder.parent == Path("/var/tmp")
        assert prepare_folder(checkout).folder == server_folder.folder
        assert ask(start(server_folder).url(), "SELECT 1") == 1
        assert {path: path.stat().st_mode for path in modes} == modes
    finally:
        postgres.stop(server_folder)
        shutil.rmtree(server_folder.folder)


@pytest.mark.skipif(not IS_ROOT, reason="only root runs the servers under another account")
def test_programs_that_the_account_cannot_reach_are_copied(
    server_folder: ServerFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = server_folder.account
    assert account
    installed = data_folder.installed_programs()
    monkeypatch.setattr(data_folder, "can_execute", lambda program, account: False)
    copied = create_folder(server_folder.folder, account)
    assert copied.postgres_bin.is_relative_to(server_folder.folder)
    assert copied.valkey_server.is_relative_to(server_folder.folder)
    assert copied.postgres_bin.stat().st_uid == account.uid
    assert ask(start(copied).url(), "SELECT 1") == 1
    with Redis.from_url(valkey.start(copied, password="Secret3").url) as client:
        assert client.ping()
    inode = copied.valkey_server.stat().st_ino
    assert create_folder(server_folder.folder, account).valkey_server.stat().st_ino == inode
    assert data_folder.installed_programs() == installed


def still_running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that have not ended; a zombie has ended."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


OWNER_OF_DISPOSABLE_SERVERS = """
import sys
from tests.support.servers import temporary_server_folder
from ticketing.devserver.servers import start_disposable
server_folder, end = temporary_server_folder()
servers = start_disposable(server_folder)
print(server_folder.folder, *servers.pids, flush=True)
sys.stdin.read()
"""


def test_disposable_servers_and_their_folder_are_removed_when_their_owner_is_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER_OF_DISPOSABLE_SERVERS],
        cwd=CHECKOUT,
        env=environment_without_run(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout
        folder, *pids = owner.stdout.readline().split()
        servers = [psutil.Process(int(pid)) for pid in pids]
        (guardian,) = [
            process for process in psutil.Process(owner.pid).children() if "guardian" in " ".join(process.cmdline())
        ]
        owner.kill()
        owner.wait(WAIT_SECONDS_MAX)
        assert wait_gone(lambda: still_running([guardian, *servers]), WAIT_SECONDS_MAX)
    assert not Path(folder).exists()
