"""A client that solves challenges, as a program of a bot or a browser does."""

from typing import Any

import altcha


def solve(challenge: dict[str, Any]) -> str:
    """Return the proof for a challenge in its JSON form."""
    given = altcha.Challenge.from_dict(challenge)
    solution = altcha.solve_challenge(given)
    assert solution is not None
    return altcha.Payload(given, solution).to_base64()
