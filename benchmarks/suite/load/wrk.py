"""The closed loop: a number of connections with one request in progress each, by wrk.

Requests are encoded in advance, so that each can be of another visitor; wrk only sends them. A list that is not
repeated may end before the time is up: the rate is then that of the time until it ended.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.suite.errors import SuiteFailed

_SCRIPT = r"""
local ffi = require("ffi")
ffi.cdef("typedef struct { long s; long ns; } moment; int clock_gettime(int, moment *);")
local function now()
  local at = ffi.new("moment")
  ffi.C.clock_gettime(1, at)
  return tonumber(at.s) + tonumber(at.ns) / 1e9
end

function setup(thread)
  only = thread
end

function init(args)
  local file = io.open(args[1], "rb")
  local text = file:read("*a")
  file:close()
  list, count, sent, first, ran_out = {}, 0, 0, 0, 0
  for one in text:gmatch("[^%z]+") do
    count = count + 1
    list[count] = one
  end
  again = args[2] == "again"
  statuses = {}
  if args[3] == "statuses" then
    response = function(status)
      statuses[status] = (statuses[status] or 0) + 1
    end
  end
  idle = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
end

function request()
  sent = sent + 1
  if sent <= count then
    if sent == 1 then first = now() end
    return list[sent]
  end
  if again then return list[(sent - 1) % count + 1] end
  if sent == count + 1 then ran_out = now() end
  return idle
end

function done(summary, latency)
  local parts = {}
  for status, times in pairs(only:get("statuses")) do
    parts[#parts + 1] = string.format('"%d":%d', status, times)
  end
  print(string.format(
    'RESULT {"requests":%d,"seconds":%f,"refused":%d,"broken":%d,"p50_ms":%f,"p99_ms":%f,"first":%f,"ran_out":%f,' ..
    '"statuses":{%s}}',
    summary.requests, summary.duration / 1e6, summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    only:get("first"), only:get("ran_out"), table.concat(parts, ",")))
end
"""


@dataclass(frozen=True)
class Flow:
    """The result of one slice."""

    responses: int
    """To the requests of the list."""
    refused: int
    """Those with 4xx and 5xx."""
    seconds: float
    p50_ms: float
    p99_ms: float
    statuses: dict[int, int]
    generator_share: float
    """The generator's processor time, as a share of one processor."""

    @cached_property
    def good_rate(self) -> float:
        """Responses per second that were not refusals."""
        return (self.responses - self.refused) / self.seconds


def send(
    program: str,
    port: int,
    requests: Sequence[bytes],
    *,
    connections: int,
    seconds: int,
    again: bool = False,
    statuses: bool = False,
) -> Flow:
    """Send the requests in order for this long, or until the list ends; with `again`, repeat the list. `statuses`:
    count each status, which costs the generator some time."""
    with tempfile.TemporaryDirectory(prefix="fairgate-wrk-") as made:
        folder = Path(made)
        (folder / "send.lua").write_text(_SCRIPT)
        (folder / "requests").write_bytes(b"\0".join(requests))
        before = os.times()
        done = subprocess.run(
            [
                program, "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(folder / "send.lua"),
                f"http://127.0.0.1:{port}", str(folder / "requests"), "again" if again else "once",
                "statuses" if statuses else "quick",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        after = os.times()
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    if done.returncode != 0 or line is None:
        raise SuiteFailed(f"wrk failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    result = json.loads(line.removeprefix("RESULT "))
    if result["broken"] > result["requests"] // 1_000:
        raise SuiteFailed(f"wrk: {result['broken']} of {result['requests']} requests failed")
    responses, elapsed = result["requests"], result["seconds"]
    if result["ran_out"]:
        responses, elapsed = len(requests) - connections + 1, result["ran_out"] - result["first"]
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return Flow(
        responses=responses,
        refused=result["refused"],
        seconds=elapsed,
        p50_ms=result["p50_ms"],
        p99_ms=result["p99_ms"],
        statuses={int(status): times for status, times in result["statuses"].items()},
        generator_share=cpu / result["seconds"],
    )
