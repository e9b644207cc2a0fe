"""Loaded by schemathesis: the token of each generated call, and the refusals that are business rules."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import schemathesis
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.openapi.checks import (
    RejectedPositiveData,
    UnsupportedMethodResponse,
    UseAfterFree,
)

from tests.processes.contract.business_rules import KEPT_AFTER_DELETE, is_business_rule

_LONG_WAITS = frozenset(map(str, range(2, 21)))
"""Valid values of `wait_seconds`."""
_tokens: dict[str, Any] = {
    name: itertools.cycle(tokens)
    for name, tokens in json.loads(Path(os.environ["CONTRACT_TOKENS"]).read_text()).items()
}


@schemathesis.auth(refresh_interval=None)
class NextToken:
    """Gives a call for an event one of that event's tokens, if there are any, and any other call the account's."""

    def get(self, case: schemathesis.Case, context: schemathesis.AuthContext) -> str:
        path = context.operation.path
        if "/organizer/" in path or "/feeds" in path:
            return next(_tokens["feed"])
        event = (case.path_parameters or {}).get("event")
        if "/check-in" in path or event not in _tokens:
            event = "account"
        return next(_tokens[event])

    def set(self, case: schemathesis.Case, data: str, context: schemathesis.AuthContext) -> None:
        case.headers["Authorization"] = f"Bearer {data}"


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
    """Let a receive from a feed wait for a second at most."""
    if case.query and str(case.query.get("wait_seconds")) in _LONG_WAITS:
        case.query["wait_seconds"] = 1


@schemathesis.hook
def filter_failure(
    context: schemathesis.HookContext, failure: Failure, case: schemathesis.Case, response: schemathesis.Response
) -> bool:
    """Keep every failure that no business rule explains."""
    operation = case.operation.definition.raw["operationId"]
    if isinstance(failure, UseAfterFree):
        return operation not in KEPT_AFTER_DELETE
    if isinstance(failure, AcceptedNegativeData) and response.status_code == 410:
        return False  # The admission has expired in a slow run; that is decided before the body.
    if isinstance(failure, UnsupportedMethodResponse) and response.request.method in ("GET", "HEAD"):
        return response.request.body is None or response.status_code != 400  # The server refuses their bodies.
    if not isinstance(failure, RejectedPositiveData) or not response.headers.get("content-type", [""])[0].endswith(
        "json"
    ):
        return True
    return not is_business_rule(operation, response.json())
