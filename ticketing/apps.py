from django.apps import AppConfig, apps
from django.core import checks
from django.db.models.signals import post_migrate, pre_migrate


class CompositionConfig(AppConfig):
    """The composition root: registers outbox handlers, metrics and checks in every process that loads Django."""

    name = "ticketing"

    def ready(self) -> None:
        from apps.events import facade as events
        from apps.kernel import rate_limits
        from apps.kernel.db import role_limits
        from apps.kernel.fastpath import concurrency_limit
        from apps.kernel.feeds import feed_metrics
        from apps.kernel.group_commit import batcher
        from apps.kernel.http import static_files
        from apps.kernel.observability import metrics, operations_port, request_metrics
        from apps.kernel.outbox import outbox_metrics
        from apps.kernel.proof_of_work import challenges
        from apps.kernel.push import hub
        from apps.kernel.rate_limits import address_caps
        from apps.kernel.scheduler import scheduler_metrics
        from apps.kernel.tokens import account_tokens
        from apps.reservations import facade as reservations
        from ticketing import outbox_handlers
        from ticketing.operations import health
        from ticketing.server import cookie_values, form_parts, header_parameters

        cookie_values.install()
        form_parts.install()
        header_parameters.install()
        account_tokens.accept_fallbacks()
        operations_port.register("/readyz", health.answer_readyz)
        operations_port.register("/metrics", health.answer_metrics)
        outbox_handlers.register()
        metrics.register(
            *batcher.METRICS,
            *reservations.METRICS,
            *rate_limits.METRICS,
            *address_caps.METRICS,
            *challenges.METRICS,
            *request_metrics.METRICS,
            *concurrency_limit.METRICS,
            *outbox_metrics.METRICS,
            *scheduler_metrics.METRICS,
            *feed_metrics.METRICS,
            *hub.METRICS,
            *events.VIEW_METRICS,
        )
        checks.register(static_files.check_collected, deploy=True)
        # Django sends migration signals only for apps with models.
        kernel = apps.get_app_config("kernel")
        pre_migrate.connect(role_limits.lift_while_migrating, sender=kernel)
        post_migrate.connect(role_limits.apply_after_migrating, sender=kernel)
