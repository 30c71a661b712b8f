"""Judges of builds that know nothing of what the tool remembers."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from offload_tool.passes.choose_compiler import find_toolchain
from tests.scons.conftest import Project, contents
from tests.scripts import counting_launcher, script

_MADE = (".co", ".o", ".a", ".hipfb", ".bc", ".d", ".dblite", ".log")


def clean_build(project: Project, *arguments: str) -> Project:
    """Build all that lies beside and in a project's folder elsewhere, from nothing, uncached."""
    parent = project.folder.parent
    place = parent.with_name(f"{parent.name}-clean")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(parent, place, ignore=_made, symlinks=True)
    made = Project(place / project.folder.name, dict(project.environment))
    counting_launcher(made.folder)
    made.build("--cache-disable", *arguments)
    return made


def _made(_folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(_MADE) or name == "cache"]


def assert_as_clean_build(project: Project, names: Sequence[str]) -> None:
    """Compare outputs with those of a clean build of the same sources."""
    expected = contents(clean_build(project).folder, names)
    found = contents(project.folder, names)
    wrong = [name for name in names if found[name] != expected[name]]
    assert wrong == [], f"not what a clean build makes: {wrong}"


def own_clang() -> Path:
    """Return a clang that a script may stand before."""
    found = find_toolchain()
    if found.is_embedded:
        pytest.skip("a script around the embedded compiler lacks what that one is given")
    return Path(found.clang[0])


def compiler_script(project: Project, name: str, after: str = "", before: str = "") -> str:
    """Return an OFFLOAD_CLANG: a script that runs the compiler, with more around each compile.

    `before` and `after` are lines of shell; in them, ``$out`` is the output, and ``$status``
    what the compiler said. Questions to the compiler pass through.
    """
    return script(
        project.folder.parent / name,
        f"clang={shlex.quote(str(own_clang()))}\n"
        'case " $* " in *" -c "*) ;; *) exec "$clang" "$@";; esac\n'
        'out=; last=; for word; do [ "$last" = -o ] && out=$word; last=$word; done\n'
        f"{before}\n"
        '"$clang" "$@"; status=$?\n'
        f"{after}\n"
        "exit $status",
    )
