"""Folders and wheels for fewer devices: every file in them thinned, see `thin`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from offload_tool.containers.file_format import FileFormat, recognise
from offload_tool.containers.find import containers_in
from offload_tool.containers.walk import Place
from offload_tool.errors import UnsupportedError, UsageError
from offload_tool.formats.wheel import is_wheel
from offload_tool.io import StrPath, replace_file
from offload_tool.io.output_folder import new_folder, open_folder
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan
from offload_tool.operations.tree import (
    FolderTree,
    FolderWriter,
    Tree,
    TreeWriter,
    WheelTree,
    WheelWriter,
    is_inside,
)


def thin_folder(
    folder: StrPath,
    output: StrPath,
    plan: Callable[[Place], FilePlan | None],
    check: Callable[[], None],
    spool: Spool,
    *,
    keep_equal: bool,
) -> tuple[int, int]:
    """Write the folder with what `plan` makes of each file, into `output`, if `check` agrees.

    In place, only what changes is written, and what is left out is removed. Gives the
    bytes of all files, before and after.

    :raises UsageError: the output is in the folder.
    """
    old, new = Path(folder), Path(output)
    in_place = new.exists() and new.samefile(old)
    if not in_place and is_inside(new, old):
        raise UsageError(
            f"the output '{output}' is in the folder to be thinned, '{folder}'; "
            "write elsewhere, or to the folder itself"
        )
    with new_folder(output, keep_equal=keep_equal) as fresh:
        tree = FolderTree(old, besides=fresh.temporary)
        writer = FolderWriter(tree, fresh, only_changed=in_place)
        saved = _thin(tree, writer, plan, spool)
        check()
        writer.finish()
        before = sum(Path(tree.path(f.name)).stat().st_size for f in tree.files if f.kind == "file")
    if in_place:
        with open_folder(old) as thinned:
            for name in writer.removed:
                thinned.remove(name)
    return before, before - saved


def thin_wheel(
    path: StrPath,
    output: StrPath,
    plan: Callable[[Place], FilePlan | None],
    check: Callable[[], None],
    spool: Spool,
    *,
    keep_equal: bool,
) -> tuple[int, int]:
    """Write the wheel with what `plan` makes of each file; return its bytes, before and after."""
    with WheelTree(path) as tree:
        whole = _wheel_plan(tree, plan, spool) or FilePlan.of(
            [tree.source.range(0, len(tree.source))]
        )
        check()
        with replace_file(output, keep_equal=keep_equal) as out:
            whole.write_to(out)
        return len(tree.source), whole.size


def _wheel_plan(
    tree: WheelTree, plan: Callable[[Place], FilePlan | None], spool: Spool
) -> FilePlan | None:
    """Plan the wheel, which stays open until that is written; None if it stays as it is."""
    writer = WheelWriter(tree, spool)
    _thin(tree, writer, plan, spool)
    writer.finish()
    return writer.plan() if writer.is_changed else None


def _thin(
    tree: Tree, writer: TreeWriter, plan: Callable[[Place], FilePlan | None], spool: Spool
) -> int:
    """Write all files; return how many bytes that saved."""
    saved = 0
    for file in tree.files:
        if file.kind != "file":
            writer.keep(file)
            continue
        with tree.open(file) as place, ExitStack() as stack:
            new = None if place is None else _planned(place, plan, spool, stack)
            if new is None or place is None:
                writer.keep(file)
                continue
            if new.size:
                writer.put(file, new)
            else:
                writer.leave_out(file)
            saved += len(place.source) - new.size
    return saved


def _planned(
    place: Place, plan: Callable[[Place], FilePlan | None], spool: Spool, stack: ExitStack
) -> FilePlan | None:
    if recognise(place.source.data) is not FileFormat.ZIP:
        return plan(place)
    if is_wheel(place.path) and not place.names:
        return _wheel_plan(stack.enter_context(WheelTree(place.path)), plan, spool)
    if any(True for _ in containers_in(place.source, place.label)):
        message = "cannot be thinned where it is: it is a zip file; thin it by itself before"
        raise UnsupportedError(message, path=place.label)
    return None
