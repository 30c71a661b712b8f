"""Fixtures for tests of commands: a folder with a source, compilers, a browser."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest

from offload_tool.clang import driver
from offload_tool.cli import main
from offload_tool.passes import choose_compiler
from offload_tool.toolchain.probe import Toolchain
from tests.cli.browsing import Browser, headless_chromium
from tests.conftest import run_tool
from tests.operations.fatbins import HOST, make_bundle
from tests.scripts import script

KERNEL = """\
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void kernel(int* p) { *p = VALUE; }
"""
CUDA = """\
struct dim3 { unsigned x, y, z; };
extern "C" int cudaLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
__attribute__((global)) void fill(int* p) { *p = 1; }
"""


def run(*args: object) -> int:
    try:
        return main([*map(str, args)])
    except SystemExit as end:
        return int(str(end.code or 0))


def schema_judge(*args: str) -> jsonschema.Draft202012Validator:
    """Return a validator by the schema that a command prints, which is valid itself."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert run(*args) == 0
    judge = jsonschema.Draft202012Validator(json.loads(out.getvalue()))
    judge.check_schema(judge.schema)
    return judge


def state(path: str) -> tuple[int, int]:
    """Return the inode and the modification time of a file."""
    found = Path(path).stat()
    return found.st_ino, found.st_mtime_ns


def names() -> set[str]:
    return {path.name for path in Path().iterdir()}


def hits() -> int:
    """Return how many compiles ccache had results of."""
    found = dict(line.split("\t")[:2] for line in run_tool("ccache", "--print-stats").splitlines())
    return int(found["direct_cache_hit"]) + int(found["preprocessed_cache_hit"])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from headless_chromium()


@pytest.fixture
def folder(tmp_path: Path, compiler: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "build"
    made.mkdir()
    (made / "k.hip").write_text(KERNEL)
    monkeypatch.chdir(made)
    for name in ("OFFLOAD_LAUNCHER", "OFFLOAD_DIST"):
        monkeypatch.delenv(name, raising=False)
    return made


@pytest.fixture
def fallbacks(tmp_path: Path) -> Path:
    """Return a bundle of native code for one setting, generic code and SPIR-V."""
    images = {HOST: b"", "gfx942:xnack+": b"native", "gfx9-4-generic": b"generic"}
    spirv = {"hip-spirv64-amd-amdhsa--amdgcnspirv": b"SPIR-V"}
    return make_bundle(tmp_path / "f", images | spirv)


@pytest.fixture
def stand_in(
    tmp_path: Path, compiler: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Return a function that replaces compiles, but not queries, by the commands in `text`."""
    if compiler.origin.startswith("embedded"):
        pytest.skip("a script around the embedded compiler lacks what that one is given")

    def make(text: str) -> None:
        real = shlex.join(compiler.clang)
        path = script(
            tmp_path / "clang-99",
            f'case " $* " in *" -o /dev/null "*|*/offload-trial-*) exec {real} "$@" ;;\n'
            f'*" -o "*) ;; '
            f'*) exec {real} "$@" ;; esac\nreal={real}\n{text}',
        )
        monkeypatch.setenv("OFFLOAD_CLANG", path)
        for cached in (
            choose_compiler._find,
            driver.output_of,
        ):  # a command line runs in a new process
            cached.cache_clear()

    return make
