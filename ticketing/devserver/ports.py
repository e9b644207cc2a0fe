"""Loopback ports: find free ones and check whether one is in use."""

import errno
import socket

LOOPBACK = "127.0.0.1"


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a server could listen on the port now. Raises OSError for reasons other than another listener."""
    with socket.socket() as probe:
        # As servers do, ignore closed connections of an earlier run.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def free_port(preferred: int | None = None) -> int:
    """Return a free port, the preferred one if possible. Another program may still take it before us."""
    if preferred and is_free(preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port
