"""Build tools run these commands thousands of times, so they load little."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cli.loaded import loaded_modules

if TYPE_CHECKING:
    from pathlib import Path

SLOW = {"argparse", "difflib", "subprocess", "shutil", "tempfile", "importlib.metadata"}
SLOW |= {"offload_tool.cli.parser", "offload_tool.cli.limit_options", "offload_tool.compiler"}


def test_bundler(tmp_path: Path) -> None:
    """A bundle of plain files needs no other command."""
    for name in ("host", "device"):
        (tmp_path / name).write_bytes(b"content")
    targets = "host-x86_64-unknown-linux-gnu,hip-amdgcn-amd-amdhsa--gfx906"
    words = ["bundler", "-type=o", f"-targets={targets}", f"-output={tmp_path / 'bundle'}"]
    words += [f"-input={tmp_path / 'host'}", f"-input={tmp_path / 'device'}"]
    loaded = loaded_modules(words)
    assert loaded & SLOW == set()


def test_packager(tmp_path: Path) -> None:
    """A package of plain files needs no other command."""
    (tmp_path / "device").write_bytes(b"content")
    image = f"--image=file={tmp_path / 'device'},triple=amdgcn-amd-amdhsa,arch=gfx906,kind=hip"
    loaded = loaded_modules(["packager", f"-o={tmp_path / 'package'}", image])
    assert loaded & SLOW == set()
