"""The state file: addresses of the running demo, for other processes of this checkout (`manage.py`)."""

import json
import os
from pathlib import Path
from typing import Any

STATE_FILE = Path(".local") / "servers.json"


def read_state(base_dir: Path) -> dict[str, str] | None:
    """Return the values that the checkout's running demo wrote, as text, or None if it is not running.

    It is running if every process in the file is alive with the same start time, which rules out a reused process id.
    This takes two small reads per process.
    """
    try:
        written = json.loads((base_dir / STATE_FILE).read_text())
    except (OSError, ValueError):
        return None  # Missing, incomplete or unreadable: no demo.
    if not isinstance(written, dict):
        return None
    processes = written.pop("processes", [])
    if not processes or not all(is_alive(entry["pid"], entry["started"]) for entry in processes):
        return None
    return {key: str(value) for key, value in written.items()}


def write_state(base_dir: Path, values: dict[str, str | int], pids: list[int]) -> None:
    """Replace the state file atomically, readable by its owner only because it contains passwords.

    `pids`: the processes that must all be alive for the state to be valid.
    """
    path = base_dir / STATE_FILE
    path.parent.mkdir(exist_ok=True)
    content: dict[str, Any] = {**values, "processes": [{"pid": pid, "started": started_at(pid)} for pid in pids]}
    partial = path.with_suffix(".new")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=1)
    partial.replace(path)


def clear_state(base_dir: Path) -> None:
    """Delete the state file."""
    (base_dir / STATE_FILE).unlink(missing_ok=True)


def is_alive(pid: int, started: str) -> bool:
    """Return whether the process with this id and start time is still running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # Alive, under another account.
    return started_at(pid) == started


def started_at(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; "" if unknown."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields_after_name = line.rpartition(")")[2].split()
    state, start_time = fields_after_name[0], fields_after_name[19]
    return "" if state == "Z" else start_time
