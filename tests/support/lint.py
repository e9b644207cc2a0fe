"""`make lint`: every check that needs no server. All of them run; one failure makes the whole fail."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PYTHON = sys.executable
PROGRAMS = Path(sys.executable).parent
# Nothing listens there: a check that connects to a server does not belong here.
NO_SERVER = {"DATABASE_URL": "postgres://user:none@127.0.0.1:1/none", "REDIS_URL": "redis://127.0.0.1:1/0"}
LIKE_PRODUCTION = {
    "SECRET_KEY": "".join(chr(33 + (number * 37) % 90) for number in range(64)),
    "SITE_URL": "https://tickets.example",
    "ALLOWED_HOSTS": "tickets.example",
    "DEBUG": "off",
    "EMAIL_URL": "smtp+tls://user:password@mail.example:587",
    "PAYMENT_PROVIDER": "stripe",
    "STRIPE_SECRET_KEY": "sk_live_" + "0" * 8,
    "STRIPE_PUBLISHABLE_KEY": "pk_live_" + "0" * 8,
    "STRIPE_WEBHOOK_SECRETS": "whsec_" + "0" * 8,
}
PYTEST = [PYTHON, "-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider"]
MANAGE = [PYTHON, "-W", "ignore::RuntimeWarning", "manage.py"]

# The Django plugin keeps dependencies on a removed module of models in mypy's cache, and then reports it as missing:
# each set of modules has a cache of its own.
MODELS = sorted(str(path.relative_to(CHECKOUT)) for path in CHECKOUT.glob("apps/*/models/*.py"))
MYPY_CACHE = f".mypy_cache/{hashlib.sha256(repr(MODELS).encode()).hexdigest()[:12]}"

CHECKS: list[tuple[str, list[str], dict[str, str]]] = [
    ("ruff check", [PYTHON, "-m", "ruff", "check", "--quiet", "."], {}),
    ("ruff format", [PYTHON, "-m", "ruff", "format", "--quiet", "--check", "--diff", "."], {}),
    ("mypy", [PYTHON, "-m", "mypy", "--cache-dir", MYPY_CACHE], {}),
    ("imports", [PYTHON, str(PROGRAMS / "lint-imports"), "--no-cache"], {}),
    ("migrations", [*MANAGE, "makemigrations", "--check", "--dry-run"], {}),
    ("deployment", [*MANAGE, "check", "--deploy", "--fail-level", "WARNING"], LIKE_PRODUCTION),
    ("tidy", [*PYTEST, "tests/architecture/test_tidy.py", "tests/architecture/test_wording.py"], {}),
    ("documents", [*PYTEST, "tests/architecture/test_docs.py"], {}),
]


def main() -> int:
    failed = []
    for name, command, environment in CHECKS:
        begun = time.monotonic()
        known = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            env={**known, **NO_SERVER, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        word = "ok" if done.returncode == 0 else "FAILED"
        print(f"{name:<15} {word:<7} {time.monotonic() - begun:5.1f} s", flush=True)
        if done.returncode != 0:
            failed.append(name)
            print(done.stdout.rstrip(), flush=True)
    if failed:
        print(f"make lint: {', '.join(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
