"""Flame graphs by py-spy, of a process and its children."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

END_SECONDS_MAX = 20


@contextmanager
def recorded(py_spy: str, pid: int, path: Path) -> Iterator[None]:
    """Write a flame graph of the block to the path, or the reason for its absence beside it."""
    process = subprocess.Popen(
        [
            py_spy, "record", "--pid", str(pid), "--subprocesses", "--rate", "200", "--nonblocking", "--duration",
            "600", "--output", str(path),
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
        if not path.exists():
            lines = errors.strip().splitlines()
            reason = lines[-1] if lines else f"py-spy ended with {process.returncode}"
            path.with_suffix(".txt").write_text(f"No flame graph: {reason}\n")
            print(f"  no flame graph: {reason}", flush=True)
