from django.apps import AppConfig


class IdiomaticConfig(AppConfig):
    name = "benchmarks.suite.baselines.idiomatic"
    label = "idiomatic"
    default_auto_field = "django.db.models.BigAutoField"
