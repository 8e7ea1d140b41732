"""Writes every pinned package as a bill of materials in CycloneDX JSON: `python tools/write_sbom.py CONSTRAINTS OUT`.

Licences are those that installed packages state: what is pinned for another platform or Python has none. A package is
required where moreaugrad needs it here without extras, else optional.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = "moreaugrad"
LONGEST = 80  # characters of the name of a licence: some packages state its text


def main(constraints: Path, out: Path) -> None:
    text = constraints.read_text()
    pins = [Requirement(line) for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    needed = find_needed(Requirement(OURS))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, text)}"}
    about = {"version": 1, "metadata": {"component": describe(Requirement(f"{OURS}=={version(OURS)}"), needed)}}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(head | about | {"components": [describe(pin, needed) for pin in pins]}, indent=1) + "\n")
    print(f"{len(pins)} packages -> {out}")  # noqa: T201


def find_needed(first: Requirement) -> set[str]:
    """The names of a package and of all that it needs, and what that needs, on this machine."""
    found, todo = set(), [first]
    while todo:
        asked = todo.pop()
        extras = {"", *asked.extras}
        if (key := (canonicalize_name(asked.name), *sorted(extras))) in found:
            continue
        found.add(key)
        try:
            wanted = [Requirement(each) for each in requires(asked.name) or ()]
        except PackageNotFoundError:
            continue
        todo += [each for each in wanted if not each.marker or any(each.marker.evaluate({"extra": x}) for x in extras)]
    return {name for name, *_ in found}


def describe(pin: Requirement, needed: set[str]) -> dict[str, Any]:
    """A component: what it is, whether it is needed, where it is installed, and the licences that it states."""
    name, number = canonicalize_name(pin.name), str(pin.specifier).removeprefix("==")
    purl = f"pkg:pypi/{name}@{number}"
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "version": number, "purl": purl}
    found["scope"] = "required" if name in needed else "optional"
    try:
        licences = list(find_licences(metadata(name)))
    except PackageNotFoundError:
        licences = []
    if pin.marker:
        found["properties"] = [{"name": f"{OURS}:marker", "value": str(pin.marker)}]
    return found | ({"licenses": licences} if licences else {})


def find_licences(about: PackageMetadata) -> Iterator[dict[str, Any]]:
    """The expression of new metadata; else the name or the classifiers of old ones."""
    stated = about.get("License") or ""
    if about.get("License-Expression"):
        yield {"expression": about["License-Expression"]}
    elif 0 < len(stated) <= LONGEST and "\n" not in stated and stated.lower() not in ("unknown", "dual license"):
        yield {"license": {"name": stated}}
    else:
        named = (each for each in about.get_all("Classifier") or () if each.startswith("License :: "))
        yield from ({"license": {"name": each.rpartition(" :: ")[2]}} for each in named)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
