from django.apps import AppConfig


class IdiomaticConfig(AppConfig):
    name = "benchmarks.suite.idiomatic"
    label = "idiomatic"
    default_auto_field = "django.db.models.BigAutoField"
