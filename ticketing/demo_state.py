"""The state file: what the running demo of this checkout listens on, for whoever else runs here (`manage.py`)."""

import json
import os
from pathlib import Path
from typing import Any

STATE_FILE = Path(".local") / "servers.json"


def read_state(base_dir: Path) -> dict[str, str] | None:
    """Returns what the checkout's running demo wrote down, every value as text, or None when it no longer runs.

    It runs while every process noted in it is alive under the same start time: two small reads per process, and a
    process id that was given to somebody else does not count.
    """
    try:
        written = json.loads((base_dir / STATE_FILE).read_text())
    except (OSError, ValueError):
        return None  # Never written, half written, or not ours to read: the same as no demo.
    if not isinstance(written, dict):
        return None
    processes = written.pop("processes", [])
    if not processes or not all(is_alive(entry["pid"], entry["started"]) for entry in processes):
        return None
    return {key: str(value) for key, value in written.items()}


def write_state(base_dir: Path, values: dict[str, str | int], pids: list[int]) -> None:
    """Replaces the state file in one step, readable by its owner only: it holds the passwords.

    `pids`: the processes whose life is the life of this state.
    """
    path = base_dir / STATE_FILE
    path.parent.mkdir(exist_ok=True)
    content: dict[str, Any] = {**values, "processes": [{"pid": pid, "started": started_at(pid)} for pid in pids]}
    half_written = path.with_suffix(".new")
    half_written.unlink(missing_ok=True)
    with open(os.open(half_written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=1)
    half_written.replace(path)


def clear_state(base_dir: Path) -> None:
    """Leaves no state file."""
    (base_dir / STATE_FILE).unlink(missing_ok=True)


def is_alive(pid: int, started: str) -> bool:
    """Tells whether the process that had this id at that start still runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # Alive, under another account.
    return started_at(pid) == started


def started_at(pid: int) -> str:
    """Returns the kernel's start time of a process, in clock ticks since boot; "" where the system does not tell."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields_after_name = line.rpartition(")")[2].split()
    state, start_time = fields_after_name[0], fields_after_name[19]
    return "" if state == "Z" else start_time
