"""The bill of materials has what CycloneDX 1.6 demands of each component, and every pin."""

import json
import re
from pathlib import Path

import pytest
import write_sbom
from packaging.requirements import Requirement

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
PURL = re.compile(r"pkg:pypi/([a-z0-9]+(?:-[a-z0-9]+)*)@([^/@?#\s]+)")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("sbom") / "new" / "sbom.json"
    write_sbom.main(CONSTRAINTS, out)
    return out.read_text()


@pytest.fixture(scope="module")
def bill(written) -> dict:
    return json.loads(written)


def test_the_head(bill):
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    ours = bill["metadata"]["component"]
    assert (ours["name"], ours["licenses"]) == ("moreaugrad", [{"expression": "Apache-2.0"}])


def test_every_component(bill):
    known = {"type", "bom-ref", "name", "version", "purl", "scope", "licenses", "properties"}
    components = [bill["metadata"]["component"], *bill["components"]]
    for each in components:
        assert {"type", "name", "version", "purl", "scope"} <= each.keys() <= known
        assert PURL.fullmatch(each["purl"]).groups() == (each["name"], each["version"])
        assert (each["type"], each["scope"] in ("required", "optional")) == ("library", True)
        for licence in each.get("licenses", [{"expression": "MIT"}]):
            ((kind, value),) = licence.items()
            assert value if kind == "expression" else value["name"].strip()
            assert kind == "license" or len(each.get("licenses", [0])) == 1  # an expression stands alone
    assert len({each["bom-ref"] for each in components}) == len(components)


def test_it_is_complete(bill):
    lines = [line for line in CONSTRAINTS.read_text().splitlines() if not line.lstrip().startswith("#")]
    pins = sorted((line.partition("==")[0], line.partition("==")[2].partition(" ")[0]) for line in lines)
    assert sorted((each["name"], each["version"]) for each in bill["components"]) == pins
    marked = sum(";" in line for line in lines)
    assert marked == sum("properties" in each for each in bill["components"]) > 0


def test_what_the_package_needs_is_required(bill):
    scopes = {each["name"]: each["scope"] for each in bill["components"]}
    direct = {Requirement(each).name for each in write_sbom.requires("moreaugrad") if "extra ==" not in each}
    direct = {write_sbom.canonicalize_name(name) for name in direct}
    assert {scopes[name] for name in direct} == {"required"}
    assert {scopes[name] for name in ("sympy", "huggingface-hub")} == {"required"}  # of torch, of timm
    assert {scopes[name] for name in ("pytest", "mypy", "starlette", "ray")} == {"optional"}


def test_no_address_and_twice_the_same(written, tmp_path):
    assert "://" not in written
    write_sbom.main(CONSTRAINTS, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == written


class About(dict):
    def get_all(self, name):
        return ["License :: OSI Approved :: BSD License", "Programming Language :: Python"]


def test_licences_are_those_that_the_package_states():
    stated = {"License-Expression": "MIT-CMU", "License": "MIT"}
    assert list(write_sbom.find_licences(About(stated))) == [{"expression": "MIT-CMU"}]
    assert list(write_sbom.find_licences(About(License="MIT"))) == [{"license": {"name": "MIT"}}]
    for text in ("", "UNKNOWN", "Copyright\nall of it", "x" * 200):
        assert list(write_sbom.find_licences(About(License=text))) == [{"license": {"name": "BSD License"}}]
