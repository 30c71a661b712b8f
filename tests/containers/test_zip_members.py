"""Files next to a library: in a zip file, and in a folder."""

from __future__ import annotations

import zipfile
from contextlib import ExitStack
from pathlib import Path

from offload_tool.containers.kpack import _Folder
from offload_tool.containers.zip_members import ZipFolder, ZipOverlay, open_zip
from offload_tool.io import InputFile

ARCHIVES = [".kpack/demo_gfx906.kpack", ".kpack/demo_gfx90a.kpack"]
OTHERS = [
    *(".kpack/demo_gfx906.kpack.sha256", ".kpack/demo_gfx906.txt", ".kpack/demo.kpack"),
    *(".kpack/demo_gfx906/old.kpack", ".kpack/other_gfx906.kpack"),
]


def test_archives_of_a_pattern(tmp_path: Path) -> None:
    """A zip file and a folder find the same files by the ends of their names."""
    tree = tmp_path / "tree"
    for name in (*ARCHIVES, *OTHERS, "demo.so"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    with zipfile.ZipFile(tmp_path / "demo.whl", "w") as made:
        for file in sorted(tree.rglob("*")):
            made.write(file, file.relative_to(tree))
    with ExitStack() as stack:
        source = stack.enter_context(InputFile(tmp_path / "demo.whl"))
        archive = stack.enter_context(open_zip(source, "demo.whl"))
        overlay = stack.enter_context(ZipOverlay(archive, source, "demo.whl"))
        packed = ZipFolder(overlay, "demo.so")
        assert [*packed.matching(".kpack/demo_", ".kpack")] == ARCHIVES
        unpacked = _Folder(str(tree / "demo.so"), stack)
        before = f"{unpacked.folder}/.kpack/demo_"
        found = [str(Path(name).relative_to(tree)) for name in unpacked.matching(before, ".kpack")]
        assert found == ARCHIVES
