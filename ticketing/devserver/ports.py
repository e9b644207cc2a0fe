"""Loopback ports: free ones, and whether one is taken."""

import errno
import socket

LOOPBACK = "127.0.0.1"


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Tells whether a server could listen there now. Raises OSError for reasons other than another listener."""
    with socket.socket() as probe:
        # As servers do: connections of an earlier run that are still fading away do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def free_port(preferred: int | None = None) -> int:
    """Returns a port nobody listens on, the preferred one if it is free. Somebody may still take it before us."""
    if preferred and is_free(preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port
