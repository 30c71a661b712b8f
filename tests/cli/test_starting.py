"""Build tools run these commands thousands of times, so they import little."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.loaded import loaded_modules
from tests.conftest import program, run_tool, try_tool

SLOW = {"argparse", "difflib", "subprocess", "shutil", "tempfile", "importlib.metadata"}
SLOW |= {"dataclasses", "inspect", "pathlib", "ctypes", "hashlib", "json", "zipfile"}
SLOW |= {"lz4", "msgpack", "rich", "zstandard"}
SLOW |= {"offload_tool.cli.parser", "offload_tool.cli.arguments"}
SLOW |= {f"offload_tool.{part}" for part in ("clang", "toolchain", "passes", "manifest", "run")}


def test_front_door() -> None:
    """Until the command is known, only the package itself is imported."""
    program = "import sys; before = {*sys.modules}; import offload_tool.cli; "
    program += "print(*{*sys.modules} - before)"
    loaded = run_tool(sys.executable, "-I", "-c", program).split()
    assert sorted(loaded) == ["__future__", "offload_tool", "offload_tool.cli"]


@pytest.mark.parametrize(
    "args",
    [
        "bundler -type=o -targets=host-x86_64-unknown-linux-gnu,hip-amdgcn-amd-amdhsa--gfx906 "
        "-input=host -input=device -output=bundle",
        "packager -o=package --image=file=device,triple=amdgcn-amd-amdhsa,arch=gfx906,kind=hip",
    ],
)
def test_drop_ins(args: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle or package of plain files imports no other command."""
    monkeypatch.chdir(tmp_path)
    for name in ("host", "device"):
        Path(name).write_bytes(b"content")
    assert loaded_modules(args.split()) & SLOW == set()


@pytest.mark.parametrize(
    ("name", "args", "status", "message"),
    [
        ("clang-offload-bundler-22", "-list", 1, "for the --type option: must be specified"),
        ("llvm-offload-binary", "-o p --image=file=a,triple=t", 0, ""),
        ("clang-offload-packager", "-o p --image=file=a,triple=t", 0, "is deprecated"),
        ("llvm-offload-wrapper", "--kind=cuda a -o x.bc", 0, ""),
        ("clang-offload-wrapper", "-target x86_64-pc-linux-gnu a -o x.bc", 0, ""),
    ],
)
def test_called_by_llvms_names(
    tmp_path: Path, name: str, args: str, status: int, message: str
) -> None:
    """A link with the name of LLVM's tool runs that drop-in."""
    (tmp_path / "a").write_bytes(b"image")
    (tmp_path / name).symlink_to(program("offload-tool"))
    done = try_tool(tmp_path / name, *args.split(), cwd=tmp_path)
    assert (done.returncode, message in done.stderr) == (status, True)
    assert bool(message) == bool(done.stderr)
    assert status or any((tmp_path / made).exists() for made in ("p", "x.bc"))
