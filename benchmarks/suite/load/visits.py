"""Visitors who open an event's page, join and reserve two seats, in a closed loop, by wrk; or admitted ones who only
reserve.

Each visitor is a thread of wrk with one connection, because a thread has a script state of its own: a hold needs the
token from the response to the join. After a hold the thread goes on as the next visitor. Each thread reads a short file
with seats and tokens of its own: wrk starts a thread as soon as its script is ready, so if the scripts took long, the
first threads would send requests for seconds before the last one.
"""

import json
import os
import secrets
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load.raw_requests import pairs

_SCRIPT = r"""
local threads = {}

function setup(thread)
  thread:set("number", #threads)
  threads[#threads + 1] = thread
end

function init(args)
  run, event, section = args[1], args[2], args[3]
  seats, tokens = {}, {}
  for line in io.lines(args[4] .. "/" .. number) do
    local first, second, given = line:match("^(%d+) (%d+) ?(%S*)$")
    seats[#seats + 1] = { first, second }
    tokens[#tokens + 1] = given
  end
  first_step = tokens[1] ~= "" and "hold" or "page"
  visits, step, held, refused, path = 0, first_step, 0, 0, "/api/events/" .. event
end

local function post(path, body, more)
  return "POST " .. path .. " HTTP/1.1\r\nHost: 127.0.0.1\r\n" .. more ..
    "Content-Type: application/json\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
end

function request()
  local visitor = run .. "-" .. number .. "-" .. visits
  if step == "page" then
    return "GET /events/" .. event .. "/ HTTP/1.1\r\nHost: 127.0.0.1\r\n" ..
      "Accept-Encoding: gzip, deflate, br, zstd\r\n\r\n"
  elseif step == "join" then
    return post(path .. "/queue", '{"visitor_id":"' .. visitor .. '"}', "")
  end
  local pair = seats[visits % #seats + 1]
  if first_step == "hold" then
    token = tokens[visits % #tokens + 1]
  end
  local body = '{"seats":["' .. section .. "-" .. pair[1] .. '","' .. section .. "-" .. pair[2] .. '"]}'
  return post(path .. "/reservations", body,
    "Authorization: Bearer " .. token .. "\r\nIdempotency-Key: " .. visitor .. "\r\n")
end

function response(status, headers, body)
  if status >= 300 then
    refused = refused + 1
    step, visits = first_step, visits + 1
  elseif step == "page" then
    step = "join"
  elseif step == "join" then
    token = body:match('"admission_token":"([^"]+)"') or body:match('"queue_token":"([^"]+)"')
    step = "hold"
  else
    held = held + 1
    step, visits = first_step, visits + 1
  end
end

function done(summary, latency)
  local all_held, all_refused = 0, 0
  for _, thread in ipairs(threads) do
    all_held, all_refused = all_held + thread:get("held"), all_refused + thread:get("refused")
  end
  local errors = summary.errors
  print(string.format('RESULT {"held":%d,"refused":%d,"seconds":%f,"broken":%d}', all_held, all_refused,
    summary.duration / 1e6, errors.connect + errors.read + errors.write + errors.timeout))
end
"""


@dataclass(frozen=True)
class Visits:
    held: int
    """Visits that ended with a hold."""
    refused: int
    """Requests of any step with 3xx, 4xx or 5xx."""
    seconds: float
    generator_share: float
    """The generator's processor time, as a share of one processor."""


def send(
    program: str,
    port: int,
    event: str,
    section: str,
    seat_count: int,
    *,
    visitors: int,
    seconds: int,
    tokens: Sequence[str] = (),
) -> Visits:
    """Send visits of so many visitors at a time; none of them wants seats that another has. With the tokens of admitted
    visitors, each of them only reserves. Raises SuiteFailed if wrk fails or too many requests got no response."""
    with tempfile.TemporaryDirectory(prefix="fairgate-wrk-") as made:
        folder = Path(made)
        (folder / "visits.lua").write_text(_SCRIPT)
        seats = pairs(seat_count, seat_count)
        lines = [f"{first} {second} {token}" for (first, second), token in zip(seats, tokens, strict=False)]
        lines = lines or [f"{first} {second}" for first, second in seats]
        for number in range(visitors):
            (folder / str(number)).write_text("".join(f"{line}\n" for line in lines[number::visitors]))
        before = os.times()
        done = subprocess.run(
            [
                program, f"-t{visitors}", f"-c{visitors}", f"-d{seconds}s", "--timeout", "10s",
                "-s", str(folder / "visits.lua"), f"http://127.0.0.1:{port}", secrets.token_hex(6), event, section,
                str(folder),
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        after = os.times()
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    if done.returncode != 0 or line is None:
        raise SuiteFailed(f"wrk failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    result = json.loads(line.removeprefix("RESULT "))
    if result["broken"] > visitors // 10:
        raise SuiteFailed(f"wrk: {result['broken']} requests failed")
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return Visits(result["held"], result["refused"], result["seconds"], cpu / result["seconds"])
