"""Pages that are followed step by step, run as printed in an empty folder; docs/scons.md builds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError, UsageError
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.run.validate_flags import check_flags
from offload_tool.scons.variables import DEFAULTS, VARIABLES
from tests.conftest import ROOT, NvidiaFile, missing, program, try_tool
from tests.zygote import run_scons

BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


HOWTOS = ROOT / "docs/howto"
ELSEWHERE = {"index", "sharding"}
"""Pages without steps, or with a workflow that tests/scons/test_shards.py runs."""
PAGES = [
    ROOT / "docs/tutorial.md",
    *(page for page in sorted(HOWTOS.glob("*.md")) if page.stem not in ELSEWHERE),
]


def run(command: str, folder: Path) -> list[str]:
    """Return what a command prints, on both streams."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = try_tool("sh", "-c", f"{command} 2>&1", cwd=folder, env=environment)
    return done.stdout.splitlines()


def fits(line: str, expected: str) -> bool:
    """Return whether a line is as printed; three dots stand for anything."""
    return re.fullmatch(re.escape(expected).replace(r"\.\.\.", ".*"), line) is not None


def assert_as_printed(given: list[str], expected: list[str]) -> None:
    """Check output line by line; a line of three dots stands for any number of lines."""
    position, is_open = 0, False
    for line in expected:
        if line == "...":
            is_open = True
            continue
        rest = given[position:] if is_open else given[position : position + 1]
        found = next((at for at, each in enumerate(rest) if fits(each, line)), None)
        assert found is not None, f"{line!r} is not in {given[position:]}"
        position, is_open = position + found + 1, False
    assert is_open or position == len(given), given[position:]


def needed_by_a_page(page: str) -> None:
    """Skip a page whose compiler or runtime this machine lacks."""
    try:
        find_toolchain()
    except CompilerError as error:
        missing(f"a compiler ({error})")
    if page == "openmp" and not list(Path("/usr/lib").glob("llvm-*/lib/libomptarget.so")):
        missing("LLVM's offload runtime (liboffload-dev, libomp-dev)")
    if page == "assembly" and not shutil.which("clang-22"):
        missing("clang-22")
    if page in {"cmake", "meson"}:
        for name in (page, "ninja", "clang++-22"):
            program(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nvidia: NvidiaFile
) -> None:
    needed_by_a_page(page.stem)
    if page.stem == "cuda":
        monkeypatch.setenv("CUDA_PATH", str(nvidia("ptxas").parents[1]))
    steps = 0
    for language, name, text in BLOCK.findall(page.read_text()):
        if name:
            (tmp_path / name).write_text(text)
        elif language == "console":
            for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, *expected = step.splitlines()
                assert_as_printed(run(command, tmp_path), expected)
                steps += 1
    assert steps > 1


def test_every_page_is_in_the_index() -> None:
    index = (HOWTOS / "index.md").read_text()
    names = {page.stem for page in HOWTOS.glob("*.md")} - {"index"}
    assert {*re.findall(r"\((\w[\w-]*)\.md\)", index)} == names
    assert {*re.findall(r"^([\w-]+)$", index.partition("{toctree}")[2], re.MULTILINE)} == names


def test_other_tools() -> None:
    """Flags of other tools are answered, and the variables in their place exist."""
    page = (ROOT / "docs/coming-from.md").read_text()
    assert {*re.findall(r"OFFLOAD_[A-Z_]+", page)} <= {*VARIABLES}
    for flag in ("-arch=sm_80", "-Xcompiler", "-rdc=true", "-fgpu-rdc", "--offload-arch=gfx906"):
        with pytest.raises(UsageError, match="among the flags"):
            check_flags([flag])


SCONS = (ROOT / "docs/scons.md").read_text()
SCONS_BLOCKS = re.findall(r"^```(\S+)(?: ([^\n]*))?\n(.*?)^```$", SCONS, re.MULTILINE | re.DOTALL)


def build(folder: Path, extra: str = "") -> subprocess.CompletedProcess[str]:
    """Build the page's examples; those of a section of their own only if it is `extra`."""
    try:
        find_toolchain()
    except CompilerError as error:
        missing(f"a compiler ({error})")
    script = ""
    for language, name, text in SCONS_BLOCKS:
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
    found = re.search(r"`(DefaultEnvironment\(\)\.Tool\(.*\))`", SCONS)
    assert found
    then = "\nassert DefaultEnvironment().OffloadBundle('k.hip')\n"
    flags = "DefaultEnvironment().Append(OFFLOAD_FLAGS=['-nogpuinc', '-nogpulib'])"
    (tmp_path / "SConstruct").write_text(f"{found[1]}\n{flags}{then}")
    (tmp_path / "k.hip").touch()
    done = run_scons(["-Q", "-n"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr


def test_variables_are_documented_with_their_defaults() -> None:
    rows = dict(re.findall(r"^\| `(OFFLOAD_\w+)` \|.*\| ([^|]*) \|$", SCONS, re.MULTILINE))
    own = {name: value for name, value in DEFAULTS.items() if name.startswith("OFFLOAD_")}
    assert own.keys() == rows.keys()
    for name, shown in rows.items():
        if shown.startswith("`"):
            assert shown == f"`{own[name]!r}`", name
        else:
            assert own[name] in ("", [], None), name
