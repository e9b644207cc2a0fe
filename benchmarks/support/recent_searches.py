"""Browsers and accounts with saved searches.

    python -m benchmarks.support.recent_searches COUNT

prints their Cookie headers as JSON, for a deployment whose settings are in the environment.
"""

import json
import sys

BROWSER, ACCOUNT = "browser, from Redis", "account, from Redis"


def fill(count: int) -> dict[str, list[str]]:
    """Save ten searches of each owner, copy them to Redis, and return the Cookie headers of each kind of read."""
    from django.conf import settings
    from django.test import Client

    from apps.accounts.models import User
    from apps.events.recents import history, owners, redis_copy
    from apps.kernel.outbox.models import OutboxMessage

    users = [User.objects.create_user(f"user-{number}") for number in range(count)]
    cookies: dict[str, list[str]] = {BROWSER: [], ACCOUNT: []}
    names = []
    for user in users:
        browser, secret = owners.new_browser()
        account = owners.account_owner(user.pk)
        for owner in (browser, account):
            for number in range(history.SEARCHES_MAX):
                history.record(owner, f"search {number} of act {user.pk}")
            names.append(owner.name)
        client = Client()
        client.force_login(user)
        cookies[BROWSER].append(f"{owners.COOKIE}={owners._signer.sign(secret)}")
        cookies[ACCOUNT].append(f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}")
    for start in range(0, len(names), 200):
        redis_copy.repair(names[start : start + 200])
    OutboxMessage.objects.filter(topic=history.CHANGED).delete()  # The copies are written.
    return cookies


if __name__ == "__main__":
    import django

    django.setup()
    print(json.dumps(fill(int(sys.argv[1]))))
