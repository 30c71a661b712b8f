"""The one door to SCons: what it lacks is named when it is loaded."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
import SCons.Node.FS

import offload_tool.scons
from offload_tool.scons import compat
from tests.conftest import try_tool

PRIVATE = {
    *("_children_reset", "del_binfo", "_memo", "implicit", "implicit_set", "prerequisites"),
    *("get_stored_info", "binfo", "ninfo", "keep_targetinfo", "get_executor", "co_filename"),
    *("arg2nodes_lookups", "get_ninfo", "RDirs", "cache_force", "cache_readonly"),
    *("execute_actions", "interactive", "__class__", "__code__", "released_target_info"),
    *("get_max_drift_csig", "cachepath", "config", "cmd_list", "srcdir_list", "must_be_same"),
    *("execfunction", "get_presig", "field_list", "attributes"),
    *("pre_actions", "post_actions", "CleanTargets", "MethodWrapper", "changed_timestamp_newer"),
}


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        ("import SCons.Node; del SCons.Node.Node.del_binfo", "Node.del_binfo"),
        ("import SCons.Action; del SCons.Action.execute_actions", "SCons.Action.execute_actions"),
        (
            "import SCons.Script, SCons.Executor; del SCons.Executor.Executor.get_sources",
            "Executor.get_sources",
        ),
    ],
)
def test_another_scons_is_refused_by_name(broken: str, name: str) -> None:
    """One line says what is missing, and which versions have it."""
    code = f"{broken}\nimport offload_tool.scons.compat"
    done = try_tool(sys.executable, "-c", code)
    last = done.stderr.splitlines()[-1]
    assert f"has no {name}, which this package needs; known to work are SCons 4.6 to" in last


def test_no_other_module_uses_private_names() -> None:
    """What SCons does not promise is used in `compat`, and in our classes of its nodes, alone.

    Our own data on a node is in the one attribute of `node_info`.
    """
    folder = Path(str(offload_tool.scons.__file__)).parent
    found = {
        f"{file.name}: {node.attr}"
        for file in folder.rglob("*.py")
        if file.name not in ("compat.py", "node_info.py", "node_classes.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE
        if ast.unparse(node.value) != "super()"
    }
    assert found == set()


def test_nothing_is_built_in_an_output(tmp_path: Path) -> None:
    """A program may be called like the folder by which a library's headers are included."""
    fs = SCons.Node.FS.get_default_fs()
    fs.File(str(tmp_path / "hipcub"))
    assert not compat.builds_in(str(tmp_path / "hipcub"))
    assert compat.builds_in(str(tmp_path))
    assert not compat.builds_in(str(tmp_path / "other"))
