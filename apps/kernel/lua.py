"""Loads and runs Lua scripts: one command per file, under a heading that states its result."""

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
        """Run the script atomically and return its result. Raises RedisUnavailable.

        The text is sent only to a server that does not know it, for example after a restart.
        """
        try:
            return client.evalsha(self.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return client.eval(self.text, len(keys), *keys, *arguments)

    def run_many(self, client: Redis, runs: Sequence["Run"]) -> list[Any]:
        """Run the script once for each of `runs`, in one round trip; return the results, including the errors that
        Redis returned. Raises RedisUnavailable."""
        return self.rerun_unknown(client, runs, self._send(client, runs))

    def rerun_unknown(self, client: Redis, runs: Sequence["Run"], results: list[Any]) -> list[Any]:
        """Repeat the runs that failed because Redis did not know the script; return all results."""
        unknown = [index for index, result in enumerate(results) if isinstance(result, NoScriptError)]
        if unknown:
            client.script_load(self.text)
            for index, result in zip(unknown, self._send(client, [runs[index] for index in unknown]), strict=True):
                results[index] = result
        return results

    def commands(self, runs: Sequence["Run"]) -> list[Sequence[Argument]]:
        """Return the commands that run the script on a server that knows it."""
        return [("EVALSHA", self.sha, len(keys), *keys, *arguments) for keys, arguments in runs]

    def _send(self, client: Redis, runs: Sequence["Run"]) -> list[Any]:
        with client.pipeline(transaction=False) as pipe:
            for command in self.commands(runs):
                pipe.execute_command(*command)
            return pipe.execute(raise_on_error=False)


Run = tuple[Sequence[str], Sequence[Argument]]
"""The keys and arguments of one run."""


@cache
def load(package: str, name: str, *, preceded_by: str = "") -> Script:
    """Return the script in `<package>/lua/<name>.lua`, behind the functions of another file that it shares with
    others."""
    names = [preceded_by, name] if preceded_by else [name]
    text = "\n".join(files(package).joinpath("lua", f"{one}.lua").read_text(encoding="utf-8") for one in names)
    # Redis identifies scripts by SHA-1; it is not used for security.
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
