"""Reads JSON and files for management commands, from a path or from another installation. Errors are reported in one
line with exit status 1."""

import json
import math
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from apps.kernel.http.json_body import object_of_unique_names

TIMEOUT_SECONDS = 60
ATTEMPTS = 3
BYTES_MAX = 16 * 1024 * 1024


def fetch_json(address: str) -> Any:
    """Return the JSON at this http or https address. Raises CommandError."""
    return _parse(fetch_bytes(address, "application/json"), address)


def fetch_bytes(address: str, content_type: str) -> bytes:
    """Return the content at this http or https address, after up to ATTEMPTS tries. Raises CommandError."""
    request = urllib.request.Request(address, headers={"Accept": content_type})  # noqa: S310
    for attempt in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
                raw: bytes = response.read(BYTES_MAX + 1)
            break
        except urllib.error.HTTPError as error:
            error.close()
            if error.code < 500 or attempt + 1 == ATTEMPTS:
                raise CommandError(f"{address} returned status {error.code}") from error
        except (OSError, ValueError) as error:
            if attempt + 1 == ATTEMPTS:
                raise CommandError(f"{address} cannot be read: {error}") from error
    if len(raw) > BYTES_MAX:
        raise CommandError(f"{address} returned more than {BYTES_MAX:,} bytes")
    return raw


def read_json(path: Path) -> Any:
    """Return the JSON in this file. Raises CommandError."""
    return _parse(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """Return the content of this file. Raises CommandError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error


def _parse(raw: bytes, where: str) -> Any:
    def refuse(constant: str) -> float:
        return math.nan  # No check accepts NaN.

    try:
        return json.loads(raw, parse_constant=refuse, object_pairs_hook=object_of_unique_names)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CommandError(f"{where} is not JSON") from error
    except ValueError as error:
        raise CommandError(f"{where} is not JSON that has one meaning: {error}") from error
