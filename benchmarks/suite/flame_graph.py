"""Where a process spends its time: a flame graph by py-spy, of it and of those it started."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

END_SECONDS_MAX = 20


@contextmanager
def drawn(py_spy: str, pid: int, path: Path) -> Iterator[None]:
    """The graph of the block's time is at the path afterwards, or a word beside it why not."""
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
            _, said = process.communicate(timeout=END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        if not path.exists():
            words = said.strip().splitlines()
            reason = words[-1] if words else f"py-spy ended with {process.returncode}"
            path.with_suffix(".txt").write_text(f"No flame graph: {reason}\n")
            print(f"  no flame graph: {reason}", flush=True)
