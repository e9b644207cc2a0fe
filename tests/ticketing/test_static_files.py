"""Static files as in production: collected under hashed names, with all references between them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command
from django.http import HttpResponse
from django.test import RequestFactory, override_settings
from whitenoise.middleware import WhiteNoiseMiddleware

from apps.kernel.http import static_files
from tests.support.servers import CHECKOUT

IN_TEMPLATES = re.compile(r"""\{%\s*static\s+['"]([^'"]+)['"]""")
OURS = ("css/", "fonts/", "img/", "js/", "vendor/", "favicon.svg")
NOT_OURS = ["admin", "rest_framework", "django_celery_beat"]


def named_in_templates() -> set[str]:
    pages = [*CHECKOUT.glob("templates/**/*.html"), *CHECKOUT.glob("apps/*/templates/**/*.html")]
    return {name for page in pages for name in IN_TEMPLATES.findall(page.read_text())}


def collected_in(folder: Path) -> override_settings:
    """Return production settings with these collected files, for use within a test only: other tests run in between."""
    stores = {**settings.STORAGES, "staticfiles": {"BACKEND": "apps.kernel.http.static_files.CollectedFiles"}}
    return override_settings(
        STORAGES=stores, STATIC_ROOT=str(folder), WHITENOISE_USE_FINDERS=False, WHITENOISE_AUTOREFRESH=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("collected")
    with collected_in(found):
        call_command("collectstatic", interactive=False, verbosity=0, ignore_patterns=NOT_OURS)
    return found


@pytest.fixture
def static_root(folder: Path) -> Iterator[Path]:
    with collected_in(folder):
        yield folder


def hashed(name: str) -> str:
    return staticfiles_storage.url(name).removeprefix(settings.STATIC_URL)


def test_every_file_named_in_a_template_has_an_existing_hashed_name(static_root: Path) -> None:
    names = {name for name in named_in_templates() if name.startswith(OURS)}
    assert len(names) > 15
    for name in names:
        assert re.search(r"\.[0-9a-f]{12}\.\w+$", hashed(name)), name
        assert (static_root / hashed(name)).is_file(), name


def test_modules_import_each_other_by_existing_hashed_names(static_root: Path) -> None:
    seen = 0
    for source in sorted((CHECKOUT / "static").glob("**/*.js")):
        collected = static_root / hashed(str(source.relative_to(CHECKOUT / "static")))
        for address in re.findall(r"""(?:from |import\()["'](\.[^"']+)["']""", collected.read_text()):
            seen += 1
            assert re.search(r"\.[0-9a-f]{12}\.js$", address), (source.name, address)
            assert (collected.parent / address).resolve().is_file(), (source.name, address)
    assert seen >= 15


def test_stylesheets_name_their_fonts_by_existing_hashed_names(static_root: Path) -> None:
    sheet = static_root / hashed("css/fairgate.css")
    addresses = re.findall(r'url\("(\.[^"]+)"\)', sheet.read_text())
    assert len(addresses) == 3
    for address in addresses:
        assert (sheet.parent / address).resolve().is_file(), address
        # A template preloads the same file by the same name.
        assert (sheet.parent / address).resolve().name == Path(hashed(re.sub(r"\.\w{12}", "", address[3:]))).name


def test_plain_names_used_by_scripts_and_the_error_page_are_still_served(static_root: Path) -> None:
    for name in re.findall(r'"/static/([^"]+)"', (CHECKOUT / "templates/500.html").read_text()):
        assert (static_root / name).is_file(), name


def test_a_hashed_name_is_cached_permanently_and_a_plain_one_briefly(static_root: Path) -> None:
    serve = WhiteNoiseMiddleware(lambda request: HttpResponse(status=404))
    lasting = serve(RequestFactory().get(staticfiles_storage.url("js/live.js"), HTTP_ACCEPT_ENCODING="gzip"))
    assert lasting.headers["Cache-Control"] == "max-age=315360000, public, immutable"
    assert lasting.headers["Content-Encoding"] == "gzip"
    lasting.file_to_stream.close()
    brief = serve(RequestFactory().get("/static/js/live.js"))
    assert brief.status_code == 200
    assert brief.headers["Cache-Control"] == "max-age=60, public"
    brief.file_to_stream.close()


@pytest.mark.slow
def test_the_files_of_packages_are_collected(tmp_path: Path) -> None:
    with collected_in(tmp_path):
        call_command("collectstatic", interactive=False, verbosity=0)
        for name in named_in_templates():
            assert (tmp_path / hashed(name)).is_file(), name


def test_a_deployment_without_collected_files_is_an_error(tmp_path: Path) -> None:
    assert static_files.check_collected(None) == []
    with collected_in(tmp_path):
        assert [found.id for found in static_files.check_collected(None)] == ["kernel.E002"]


def test_a_checkout_without_collected_files_serves_plain_names() -> None:
    assert staticfiles_storage.url("js/live.js") == "/static/js/live.js"
