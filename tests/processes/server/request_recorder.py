"""A WSGI application that records each request as a line of JSON in the file RECORD_FILE, and returns the line, below
/streamed without its length."""

import json
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

_writing = threading.Lock()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    length = environ.get("CONTENT_LENGTH") or "0"
    record = {
        "method": environ["REQUEST_METHOD"],
        "path": environ["PATH_INFO"],
        "query": environ.get("QUERY_STRING", ""),
        "declared": length,
        "body": environ["wsgi.input"].read().decode("latin-1"),
        "headers": {name: value for name, value in environ.items() if name.startswith("HTTP_")},
    }
    line = json.dumps(record).encode() + b"\n"
    with _writing, open(os.environ["RECORD_FILE"], "ab") as file:
        file.write(line)
    if record["path"].startswith("/streamed"):
        start_response("200 OK", [("Content-Type", "application/json")])
        return iter([line[:20], line[20:]])
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(line)))])
    return [line]
