"""The examples use nothing but public names."""

import ast
from pathlib import Path

import pytest

import moreaugrad as mg

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_uses_public_names_alone(path):
    tree = ast.parse(path.read_text())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mg"
    }
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert used
    assert all(hasattr(mg, name) and not name.startswith("_") for name in used)
    assert not any(str(name).startswith("moreaugrad") for name in imported)
