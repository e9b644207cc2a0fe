"""Requirements are pinned completely, with hashes, independent of an index, and every direct one is explained."""

import re
import tomllib

import pytest

from tests.architecture import sbom
from tests.support.servers import CHECKOUT

FOLDERS = (".", "ticketing/devserver", "tests", "benchmarks")
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def direct(folder: str) -> set[str]:
    lines = (CHECKOUT / folder / "requirements.in").read_text().splitlines()
    return {normalized(found[0]) for line in lines if (found := NAME.match(line))}


def pins(folder: str) -> dict[str, str]:
    text = (CHECKOUT / folder / "requirements.txt").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", text, re.MULTILINE))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_dependency_is_pinned_with_its_hashes(folder: str) -> None:
    text = (CHECKOUT / folder / "requirements.txt").read_text()
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text)[1:]
    assert blocks
    for block in blocks:
        assert re.match(r"[a-z0-9-]+==\S+ (;.* )?\\\n    --hash=sha256:[0-9a-f]{64}", block), block[:80]
    assert direct(folder) <= pins(folder).keys(), "run make lock"


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_names_a_package_index(folder: str) -> None:
    for name in ("requirements.in", "requirements.txt"):
        assert not re.search(r"https?://|--(extra-)?index-url|--find-links", (CHECKOUT / folder / name).read_text())


def test_the_files_agree_on_every_version() -> None:
    known = pins(".")
    for folder in FOLDERS[1:]:
        for name, version in pins(folder).items():
            assert known.setdefault(name, version) == version, name


def test_production_does_not_install_packages_of_the_demo() -> None:
    assert not direct("ticketing/devserver") & pins(".").keys()


def test_every_direct_dependency_is_explained() -> None:
    text = normalized((CHECKOUT / "docs/dependencies.md").read_text())
    for folder in FOLDERS:
        for name in direct(folder):
            assert re.search(rf"(?<![a-z0-9-]){re.escape(name)}(?![a-z0-9])", text), name


def test_the_supported_python_versions_are_the_same_everywhere() -> None:
    wanted = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert wanted == ">=3.11,<3.15"
    makefile = (CHECKOUT / "Makefile").read_text()
    assert makefile.count("(3, 11) <= ") == makefile.count("<= (3, 14)") == 2
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/operations/installation.md",
        "docs/dependencies.md",
        ".ci/run",
        "Makefile",
    ):
        assert re.search(r"3\.11 to\s+3\.14", (CHECKOUT / name).read_text()), name


@pytest.mark.slow
def test_the_bill_of_materials_is_valid_and_lists_everything_that_production_runs() -> None:
    """`build` raises if the document does not follow CycloneDX's schema."""
    document = sbom.build()
    listed = {component["purl"]: component for component in document["components"]}
    assert set(listed) == {
        *(f"pkg:pypi/{name}@{version}" for name, version in pins(".").items()),
        *(f"pkg:npm/{name}@{version}" for name, (version, _) in sbom.BROWSER.items()),
    }
    assert all(component["externalReferences"][0]["hashes"] for purl, component in listed.items() if "pypi" in purl)
    assert {file.name for file in sbom.VENDOR.iterdir()} == set(sbom.BROWSER)
    dependencies = (CHECKOUT / "docs/dependencies.md").read_text()
    assert all(f"| {name} {version} (" in dependencies for name, (version, _) in sbom.BROWSER.items())
