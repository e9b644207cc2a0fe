"""The embedded servers: started from nothing, from what a killed run left, and never on anybody else's ground."""

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
from ticketing.devserver import data_folder as places
from ticketing.devserver import postgres, valkey
from ticketing.devserver.data_folder import Account, ServerFolder, ServersFailed, create_folder, prepare_folder
from ticketing.devserver.ports import free_port, is_free
from ticketing.devserver.postgres import DISPOSABLE, Postgres
from ticketing.devserver.processes import wait_gone
from ticketing.devserver.servers import keep_secrets

IS_ROOT = os.geteuid() == 0
WAIT_SECONDS_MAX = 30
PASSWORDS = {"password": "Secret1", "superuser_password": "Secret2"}


def start(place: ServerFolder, preferred_port: int | None = None, **passwords: str) -> Postgres:
    return postgres.start(place, **{**PASSWORDS, **passwords}, settings=DISPOSABLE, preferred_port=preferred_port)


def ask(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def processes_of(place: ServerFolder) -> list[psutil.Process]:
    return [*postgres._processes_of(place), *valkey._processes_of(place)]


def kill_everything(place: ServerFolder, *, but: int | None = None) -> None:
    def doomed() -> list[psutil.Process]:
        return [process for process in processes_of(place) if process.pid != but]

    for process in doomed():
        with suppress(psutil.NoSuchProcess):  # A backend ends by itself when its postmaster does.
            process.kill()
    assert wait_gone(doomed, WAIT_SECONDS_MAX)


def test_postgresql_18_runs_on_loopback_behind_scram_with_utc(place: ServerFolder) -> None:
    cluster = start(place)
    assert str(ask(cluster.url(), "SHOW server_version")).startswith("18.")
    assert ask(cluster.url(), "SHOW listen_addresses") == "127.0.0.1"
    assert ask(cluster.superuser_url(), "SHOW unix_socket_directories") == ""
    assert ask(cluster.url(), "SHOW timezone") == "UTC"
    assert ask(cluster.superuser_url(), "SHOW password_encryption") == "scram-sha-256"
    rules = (place.postgres_data / "pg_hba.conf").read_text()
    assert "trust" not in [word for line in rules.splitlines() if not line.startswith("#") for word in line.split()]
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        ask(cluster.url().replace("Secret1", "guessed"), "SELECT 1")


def test_the_owner_of_the_database_makes_others_but_is_no_superuser(place: ServerFolder) -> None:
    cluster = start(place)
    assert ask(cluster.url(), "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    ask(cluster.url(), "CREATE DATABASE another")
    assert ask(cluster.url("another"), "SELECT current_database()") == "another"


def test_the_demos_settings_survive_a_power_cut(place: ServerFolder) -> None:
    cluster = postgres.start(place, **PASSWORDS)
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert ask(cluster.url(), f"SHOW {setting}") == "on"
    assert int(str(ask(cluster.url(), "SHOW max_connections"))) >= 100


def test_valkey_9_wants_its_password_and_writes_no_copy_of_the_copy(place: ServerFolder) -> None:
    copy = valkey.start(place, password="Secret3")
    with Redis.from_url(copy.url, decode_responses=True) as client:
        assert client.info("server")["valkey_version"].startswith("9.")
        assert client.config_get("bind")["bind"] == "127.0.0.1"
        assert client.config_get("save")["save"] == ""
        assert client.config_get("appendonly")["appendonly"] == "no"
    with Redis.from_url(copy.url.replace("Secret3", "guessed")) as stranger, pytest.raises(AuthenticationError):
        stranger.ping()


def test_no_server_runs_as_root_and_nobody_else_can_look_into_their_folder(place: ServerFolder) -> None:
    cluster, copy = start(place), valkey.start(place, password="Secret3")
    for pid in (cluster.pid, copy.pid):
        uid = psutil.Process(pid).uids().effective
        assert uid != 0
        assert uid == (place.account.uid if place.account else os.geteuid())
    assert place.folder.stat().st_mode & 0o077 == 0
    assert place.postgres_data.stat().st_mode & 0o077 == 0


def test_no_password_stands_on_a_command_line(place: ServerFolder) -> None:
    cluster, copy = start(place), valkey.start(place, password="Secret3")
    for pid in (cluster.pid, copy.pid):
        assert "Secret" not in " ".join(psutil.Process(pid).cmdline())


def test_after_a_stop_no_process_is_left_and_the_data_is_there_at_the_next_start(place: ServerFolder) -> None:
    cluster = start(place)
    valkey.start(place, password="Secret3")
    ask(cluster.url(), "CREATE TABLE kept AS SELECT 42 AS number")
    valkey.stop(place)
    cluster.stop()
    assert processes_of(place) == []
    assert is_free(cluster.port)
    again = start(place, preferred_port=cluster.port)
    assert again.port == cluster.port
    assert ask(again.url(), "SELECT number FROM kept") == 42


def test_after_kill_9_the_next_start_has_what_was_committed(place: ServerFolder) -> None:
    cluster = postgres.start(place, **PASSWORDS)
    valkey.start(place, password="Secret3")
    ask(cluster.url(), "CREATE TABLE kept AS SELECT 42 AS number")
    kill_everything(place)
    assert (place.postgres_data / "postmaster.pid").exists()
    again = postgres.start(place, **PASSWORDS)
    assert ask(again.url(), "SELECT number FROM kept") == 42
    with Redis.from_url(valkey.start(place, password="Secret3").url) as client:
        assert client.dbsize() == 0


def test_servers_that_a_killed_run_left_running_are_replaced(place: ServerFolder) -> None:
    left = start(place), valkey.start(place, password="Secret3")
    new = start(place), valkey.start(place, password="Secret3")
    assert {server.pid for server in left}.isdisjoint(server.pid for server in new)
    running = {process.pid for process in processes_of(place)}
    assert {server.pid for server in new} <= running
    assert {server.pid for server in left}.isdisjoint(running)


def test_orphans_of_a_killed_postmaster_do_not_keep_the_next_from_starting(place: ServerFolder) -> None:
    cluster = start(place)
    with psycopg.connect(cluster.url()) as connection:
        os.kill(cluster.pid, 9)
        again = start(place)
        assert ask(again.url(), "SELECT 1") == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_a_pid_file_that_names_somebody_elses_process_does_not_stand_in_the_way(place: ServerFolder) -> None:
    cluster = start(place)
    bystander = valkey.start(place, password="Secret3")
    pid_file = place.postgres_data / "postmaster.pid"
    lines = pid_file.read_text().splitlines(keepends=True)
    kill_everything(place, but=bystander.pid)
    # As after a reboot: the number belongs to another program of the same account by now.
    pid_file.write_text("".join([f"{bystander.pid}\n", *lines[1:]]))
    assert ask(start(place).url(), "SELECT 1") == 1
    assert psutil.Process(bystander.pid).is_running()
    assert cluster.pid != bystander.pid


def test_a_taken_port_is_left_to_whoever_has_it(place: ServerFolder) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        taken = holder.getsockname()[1]
        assert start(place, preferred_port=taken).port != taken
        assert valkey.start(place, password="Secret3", preferred_port=taken).port != taken


def test_a_port_that_is_taken_at_the_last_moment_is_replaced(
    place: ServerFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as holder:
        taken = holder.getsockname()[1]
        offered = [taken, free_port(), taken, free_port()]
        for module in (postgres, valkey):
            monkeypatch.setattr(module, "free_port", lambda preferred=None: offered.pop(0))
        assert start(place).port != taken
        assert valkey.start(place, password="Secret3").port != taken
        assert offered == []


def test_a_cluster_whose_passwords_were_lost_keeps_its_data_and_takes_new_ones(place: ServerFolder) -> None:
    cluster = start(place)
    ask(cluster.url(), "CREATE TABLE kept AS SELECT 42 AS number")
    cluster.stop()
    again = start(place, password="New1", superuser_password="New2")
    assert ask(again.url(), "SELECT number FROM kept") == 42
    with pytest.raises(psycopg.OperationalError):
        ask(again.superuser_url().replace("New2", "Secret2"), "SELECT 1")


def test_a_cluster_half_made_by_a_killed_run_is_made_again(place: ServerFolder) -> None:
    half = place.folder / "postgres.unfinished"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    assert ask(start(place).url(), "SELECT 1") == 1
    assert not half.exists()


def test_secrets_are_made_once_and_closed_to_others(place: ServerFolder) -> None:
    secrets = keep_secrets(place)
    assert keep_secrets(place) == secrets
    assert len(set(secrets.values())) == len(secrets)
    assert (place.folder / "secrets.json").stat().st_mode & 0o777 == 0o600
    (place.folder / "secrets.json").write_text("{broken")
    assert keep_secrets(place).keys() == secrets.keys()


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 5_000_000))
    with pytest.raises(ServersFailed, match=r"has 5 MB of disk left; the servers need \d+ MB$"):
        create_folder(tmp_path / "servers", None)


def test_a_program_that_runs_out_of_disk_says_so_in_one_line() -> None:
    said = "creating files ... \ninitdb: error: could not write: No space left on device\ninitdb: removing directory\n"
    assert places.find_error_line(said) == "initdb: error: could not write: No space left on device"


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    stranger = Account("stranger", os.geteuid() + 4242, os.getegid())
    with pytest.raises(ServersFailed, match="belongs to user id"):
        create_folder(tmp_path / "servers", stranger)
    (tmp_path / "link").symlink_to(tmp_path / "servers")
    with pytest.raises(ServersFailed, match="belongs to user id"):
        create_folder(tmp_path / "link", None)


@pytest.mark.skipif(not IS_ROOT, reason="only root hands the servers to another account")
def test_a_checkout_that_others_cannot_enter_has_its_servers_elsewhere(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    checkout = closed / "checkout"
    checkout.mkdir()
    modes = {path: path.stat().st_mode for path in (tmp_path, closed, checkout)}
    place = prepare_folder(checkout)
    try:
        assert place.folder.parent == Path("/var/tmp")
        assert prepare_folder(checkout).folder == place.folder
        assert ask(start(place).url(), "SELECT 1") == 1
        assert {path: path.stat().st_mode for path in modes} == modes
    finally:
        postgres.stop(place)
        shutil.rmtree(place.folder)


@pytest.mark.skipif(not IS_ROOT, reason="only root hands the servers to another account")
def test_programs_that_the_account_cannot_reach_are_copied(
    place: ServerFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = place.account
    assert account
    installed = places.installed_programs()
    monkeypatch.setattr(places, "can_execute", lambda program, account: False)
    copied = create_folder(place.folder, account)
    assert copied.postgres_bin.is_relative_to(place.folder)
    assert copied.valkey_server.is_relative_to(place.folder)
    assert copied.postgres_bin.stat().st_uid == account.uid
    assert ask(start(copied).url(), "SELECT 1") == 1
    with Redis.from_url(valkey.start(copied, password="Secret3").url) as client:
        assert client.ping()
    kept = copied.valkey_server.stat().st_ino
    assert create_folder(place.folder, account).valkey_server.stat().st_ino == kept
    assert places.installed_programs() == installed


def still_running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Without those that have ended and that nobody has collected yet."""
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
place, end = temporary_server_folder()
servers = start_disposable(place)
print(place.folder, *servers.pids, flush=True)
sys.stdin.read()
"""


def test_disposable_servers_are_gone_with_their_folder_when_their_owner_is_killed() -> None:
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
