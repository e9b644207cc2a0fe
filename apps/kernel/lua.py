"""Lua lives in files, one command each under a heading that says what is true afterwards; this is how a file runs."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError

Argument = str | bytes | int


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: str
    sha: str

    def run(self, client: Redis, keys: Sequence[str], arguments: Sequence[Argument] = ()) -> Any:
        """The command has run, as one step between those of all others; what it returned. Raises RedisUnavailable.

        Its text travels once: to a server that does not know it, after a restart say, it is sent again.
        """
        try:
            return client.evalsha(self.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return client.eval(self.text, len(keys), *keys, *arguments)

    def run_many(self, client: Redis, runs: Sequence["Run"]) -> list[Any]:
        """The same for many, each a step of its own, in one journey: what each returned, or the error that Redis
        answered it with. Raises RedisUnavailable."""
        return self.rerun_unknown(client, runs, self._send(client, runs))

    def rerun_unknown(self, client: Redis, runs: Sequence["Run"], found: list[Any]) -> list[Any]:
        """The same, where they were sent as `commands` already: what Redis does not know yet has run now."""
        unknown = [index for index, answer in enumerate(found) if isinstance(answer, NoScriptError)]
        if unknown:
            client.script_load(self.text)
            for index, answer in zip(unknown, self._send(client, [runs[one] for one in unknown]), strict=True):
                found[index] = answer
        return found

    def commands(self, runs: Sequence["Run"]) -> list[Sequence[Argument]]:
        """How these are sent to a server that knows the text."""
        return [("EVALSHA", self.sha, len(keys), *keys, *arguments) for keys, arguments in runs]

    def _send(self, client: Redis, runs: Sequence["Run"]) -> list[Any]:
        with client.pipeline(transaction=False) as pipe:
            for command in self.commands(runs):
                pipe.execute_command(*command)
            return pipe.execute(raise_on_error=False)


Run = tuple[Sequence[str], Sequence[Argument]]
"""Keys and arguments."""


@cache
def load(package: str, name: str) -> Script:
    """The command in `<package>/lua/<name>.lua`."""
    text = files(package).joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
    # What Redis knows a script by; nothing secret hangs on it.
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
