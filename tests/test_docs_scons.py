"""docs/scons.md: every example builds, every builder and variable is in it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from offload_tool.errors import CompilerError
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.scons import variables
from tests.conftest import ROOT, missing
from tests.zygote import run_scons

PAGE = (ROOT / "docs/scons.md").read_text()
BLOCKS = re.findall(r"^```(\S+)(?: ([^\n]*))?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def build(folder: Path, extra: str = "") -> subprocess.CompletedProcess[str]:
    """Build the page's examples; those of a section of their own only if it is `extra`."""
    try:
        find_toolchain()
    except CompilerError as error:
        missing(f"a compiler ({error})")
    script = ""
    for language, name, text in BLOCKS:
        if language in ("cpp", "text"):
            (folder / name).write_text(text)
        elif language == "python" and name in ("", extra):
            script += text
    (folder / "SConstruct").write_text(script)
    return run_scons(["-Q", "-j2"], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_examples_build(tmp_path: Path) -> None:
    """The page's examples, one after the other, are an SConstruct that builds, once."""
    first = build(tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    made = {path.name for path in tmp_path.iterdir()}
    assert {"program", "libshared.so", "libcomplete.a", "single.o"} <= made
    assert {"part.gfx90a_xnack+.co", "again.gfx906.co", "module.hipfb", "given.hipfb"} <= made
    assert {"libdevice.a", "extracted.gfx90a_xnack+.a"} <= made
    assert {"package.offload", "unpacked.gfx906.co", "registration.o"} <= made
    assert "compile_commands.json" in made
    assert re.search(r"^offload: gfx906 +\d", first.stdout, re.MULTILINE)
    second = build(tmp_path)
    assert "is up to date" in second.stdout, second.stdout


def test_default_environment(tmp_path: Path) -> None:
    """The page's line adds the tool to the environment that SConscripts share."""
    found = re.search(r"`(DefaultEnvironment\(\)\.Tool\(.*\))`", PAGE)
    assert found
    then = "\nassert DefaultEnvironment().OffloadBundle('k.hip')\n"
    flags = "DefaultEnvironment().Append(OFFLOAD_FLAGS=['-nogpuinc', '-nogpulib'])"
    (tmp_path / "SConstruct").write_text(f"{found[1]}\n{flags}{then}")
    (tmp_path / "k.hip").touch()
    done = run_scons(["-Q", "-n"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr


def test_variables_are_documented_with_their_defaults() -> None:
    rows = dict(re.findall(r"^\| `(OFFLOAD_\w+)` \|.*\| ([^|]*) \|$", PAGE, re.MULTILINE))
    own = {name: value for name, value in variables.DEFAULTS.items() if name.startswith("OFFLOAD_")}
    assert own.keys() == rows.keys()
    for name, shown in rows.items():
        if shown.startswith("`"):
            assert shown == f"`{own[name]!r}`", name
        else:
            assert own[name] in ("", [], None), name
