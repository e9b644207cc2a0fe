"""`make sbom`: a software bill of materials in CycloneDX's JSON, of what production runs.

It lists every pin of requirements.txt with its hashes, and the scripts in static/vendor. The same commit gives the same
bytes.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

CHECKOUT = Path(__file__).resolve().parent.parent.parent
FILE = CHECKOUT / ".local" / "sbom.cdx.json"
VENDOR = CHECKOUT / "static" / "vendor"
BROWSER = {"qr": ("0.7.0", "MIT OR Apache-2.0")}
"""Packages of npm in static/vendor: version and license."""


def build() -> dict[str, Any]:
    """Return the document. Raises ValueError if it does not follow CycloneDX's schema."""
    command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", "requirements.txt"]
    options = ["--pyproject", "pyproject.toml", "--output-reproducible", "--sv", "1.6", "--of", "JSON"]
    done = subprocess.run([*command, *options], cwd=CHECKOUT, stdout=subprocess.PIPE, check=True)
    document = json.loads(done.stdout)
    for component in document["components"]:
        del component["description"]  # The line of the file, with each hash a second time.
    document["components"] += [_browser_component(name) for name in sorted(BROWSER)]
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document))
    if wrong is not None:
        raise ValueError(f"not CycloneDX 1.6: {wrong}")
    return document


def _browser_component(name: str) -> dict[str, Any]:
    version, license_expression = BROWSER[name]
    files = [
        {
            "type": "file",
            "bom-ref": f"vendor-{name}-{path.name}",
            "name": path.relative_to(CHECKOUT).as_posix(),
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
        }
        for path in sorted((VENDOR / name).glob("*.js"))
    ]
    return {
        "type": "library",
        "bom-ref": f"vendor-{name}",
        "name": name,
        "version": version,
        "purl": f"pkg:npm/{name}@{version}",
        "licenses": [{"expression": license_expression}],
        "components": files,
    }


def main() -> int:
    document = build()
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{FILE.relative_to(CHECKOUT)}: {len(document['components'])} components, CycloneDX 1.6")
    return 0


if __name__ == "__main__":
    sys.exit(main())
