"""The storage of collected static files, and a deployment check that they have been collected."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.contrib.staticfiles import storage
from django.core.checks import Error
from whitenoise.storage import CompressedManifestStaticFilesStorage


class CollectedFiles(CompressedManifestStaticFilesStorage):
    """Compressed files with a hash of their content in their names.

    Imports between JavaScript modules are rewritten too. A page would otherwise load and run a module twice: by its
    hashed name from a template, and by its plain name from another module.
    """

    support_js_module_import_aggregation = True


def check_collected(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[Error]:
    """Report an error if STATIC_ROOT is set and no files were collected there: every page would fail."""
    files = storage.staticfiles_storage
    if not hasattr(files, "read_manifest") or files.read_manifest() is not None:
        return []
    text = f"STATIC_ROOT is {settings.STATIC_ROOT!r}, where no files were collected: run manage.py collectstatic"
    return [Error(text, id="kernel.E002")]
