"""With an https address, a process needs settings that are safe for real buyers."""

from typing import Any

import pytest

from ticketing.operations.deployment_rules import find_violations

SAFE: dict[str, Any] = {
    "site_url": "https://tickets.example",
    "payment_provider": "stripe",
    "allow_sandbox": False,
    "email_url": "smtp://mail.example",
    "secret_key": "k" * 32,
    "secret_key_fallbacks": ["o" * 32],
    "debug": False,
}


def named(**changes: Any) -> list[str]:
    """Return the variables that must be set, in order."""
    return [line.removeprefix("Set ").partition(" ")[0].rstrip(":") for line in find_violations(**SAFE | changes)]


def test_safe_settings_have_no_violation() -> None:
    assert named() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"payment_provider": ""}, ["PAYMENT_PROVIDER"]),
        ({"payment_provider": "sandbox"}, ["PAYMENT_PROVIDER=stripe"]),
        ({"email_url": ""}, ["EMAIL_URL"]),
        ({"secret_key": "k" * 31}, ["SECRET_KEY"]),
        ({"secret_key": "é" * 16}, []),
        ({"secret_key_fallbacks": ["o" * 32, "p" * 31]}, ["SECRET_KEY_FALLBACKS"]),
        ({"secret_key_fallbacks": []}, []),
        ({"debug": True}, ["DEBUG=0"]),
        ({"payment_provider": "", "email_url": "", "secret_key": "k"}, ["PAYMENT_PROVIDER", "EMAIL_URL", "SECRET_KEY"]),
        ({"payment_provider": "", "allow_sandbox": True}, []),
        ({"payment_provider": "sandbox", "allow_sandbox": True}, []),
        ({"site_url": "HTTPS://tickets.example", "email_url": ""}, ["EMAIL_URL"]),
    ],
)
def test_each_unsafe_setting_is_one_violation(changes: dict[str, Any], expected: list[str]) -> None:
    assert named(**changes) == expected


def test_the_demo_needs_none_of_them() -> None:
    demo = {
        "site_url": "http://localhost:8000",
        "payment_provider": "",
        "email_url": "",
        "secret_key": "k",
        "secret_key_fallbacks": ["o"],
        "debug": True,
    }
    assert named(**demo) == []


def test_a_violation_shows_no_value() -> None:
    assert "hidden" not in " ".join(
        find_violations(
            **SAFE | {"secret_key": "hidden", "secret_key_fallbacks": ["hidden"], "payment_provider": "sandbox"}
        )
    )
