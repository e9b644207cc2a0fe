"""A process that settles the stored messages of payment providers as `worker` does, and delivers nothing else.

    python -m benchmarks.suite.rows.orders.settler

Runs in the environment of a deployment, for the row of messages. For each line of its input it delivers until no
message is due, and prints a line.
"""

import os
import sys

SECONDS_MAX = 60.0


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
    import django

    django.setup()
    from django.conf import settings

    from apps.kernel.outbox import facade as outbox
    from apps.kernel.outbox.delivery import Delivery
    from apps.kernel.outbox.topic_groups import TopicGroup
    from apps.orders import facade as orders
    from apps.orders import topics

    # What a settlement writes (invoices, mails) is left to another group, and so to no process.
    group_of = {topics.PROVIDER_MESSAGE: TopicGroup.SALES}
    for each in orders.handlers():
        options = {**each.options, "group": group_of.get(each.topic, TopicGroup.MAIL)}
        outbox.register_handler(each.topic, each.handle, each.visibility, **options)
    groups = (TopicGroup.SALES,)
    delivery = Delivery(settings.OUTBOX_DELIVERERS, groups=groups)
    print("ready", flush=True)
    for _ in sys.stdin:
        # A claim that meets another process's claims may find none of the others: that process's wake-ups repeat it.
        while outbox.oldest_due_seconds(groups) is not None:
            delivery.wake()
            delivery.wait(SECONDS_MAX)
        print("done", flush=True)
    return 0 if delivery.close(SECONDS_MAX) else 1


if __name__ == "__main__":
    sys.exit(main())
