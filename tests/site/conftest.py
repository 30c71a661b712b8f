"""What is in docs/ beside the pages: modules that make pictures and the reference."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.conftest import ROOT


def load(name: str) -> ModuleType:
    """Return a module of docs/, which is no package."""
    specification = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # dataclasses look there
    specification.loader.exec_module(module)
    return module
