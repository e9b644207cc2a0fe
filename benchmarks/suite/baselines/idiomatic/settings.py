"""Minimal Django settings."""

import os

import environ

SECRET_KEY = os.environ["SECRET_KEY"]
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = ["rest_framework", "benchmarks.suite.baselines.idiomatic.apps.IdiomaticConfig"]
MIDDLEWARE: list[str] = []
ROOT_URLCONF = "benchmarks.suite.baselines.idiomatic.urls"
DATABASES = {"default": {**environ.Env.db_url_config(os.environ["DATABASE_URL"]), "CONN_MAX_AGE": None}}
DATABASES["default"]["ENGINE"] = "django.db.backends.postgresql"
USE_TZ = True
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "UNAUTHENTICATED_USER": None,
}
