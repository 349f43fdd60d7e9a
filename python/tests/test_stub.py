"""The types that the package declares for its extension are what the extension has."""

import ast
import enum
from pathlib import Path

from gemloupe import _core

STUB = ast.parse((Path(_core.__file__).parent / "_core.pyi").read_text(encoding="utf-8"))


def declared(body) -> set[str]:
    names = {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    return names | {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def public(thing) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_")}


def test_the_module_and_its_classes():
    assert declared(STUB.body) == public(_core)
    for node in STUB.body:
        if isinstance(node, ast.ClassDef) and not issubclass(getattr(_core, node.name), enum.Enum):
            assert declared(node.body) - {"__init__"} == public(getattr(_core, node.name)), node.name
