"""nginx with one static file: the throughput of a server that only sends stored bytes."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.suite import systems
from benchmarks.suite.systems import BenchServers
from ticketing.devserver.ports import free_port

PATH = "/sections.json"
_CONFIGURATION = """
{user}
worker_processes auto;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 100000000;
  open_file_cache max=10;
  types {{ application/json json; }}
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port}; root {folder}/files; }}
}}
"""


@contextmanager
def serving(on: BenchServers, program: str, body: bytes) -> Iterator[int]:
    """Serve these bytes at PATH of the yielded port until the block ends."""
    port = free_port()
    folder = on.folder / "nginx"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "files").mkdir(parents=True)
    (folder / "files" / PATH.strip("/")).write_bytes(body)
    # As root, its workers would switch to another account.
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(_CONFIGURATION.format(folder=folder, port=port, user=user))
    command = f"exec {program} -e {folder}/error.log -p {folder} -c {folder}/nginx.conf"
    with systems.started(on, "nginx", command, dict(os.environ)) as process:
        systems.wait_until_ready(port, PATH, process, "nginx")
        yield port
