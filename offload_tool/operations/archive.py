"""Write an archive with a symbol index, such as a heterogeneous device archive.

The bytes equal those that ``llvm-ar rcsD --format=gnu`` 22.1.8 writes for the same files and
names. An object bundle is a host object file, so the index lists its symbols and a host linker
can use it. Binary bundles have no symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offload_tool.errors import UsageError
from offload_tool.formats.objects.ar import NewMember, member_symbols, plan_archive
from offload_tool.io import InputFile, StrPath
from offload_tool.io.write_plan import file_plan


def create_archive(
    members: Sequence[tuple[str, StrPath]],
    output: StrPath,
    *,
    keep_equal: bool = False,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Write the archive `output` of `members`, (member name, file) in their order.

    The bytes depend on names and contents only. `keep_equal` leaves an equal file untouched. Files
    are opened one at a time; memory use does not depend on their sizes. `warn` is called if the
    symbols of bitcode or COFF cannot be read: the member is then written without symbols.

    :raises UsageError: a name is not a plain file name or occurs twice, or a file is not a
        regular file.
    :raises FormatError: a member is an ELF file with a broken symbol table.
    :raises FileError: a file cannot be read or written.
    """
    _check_names(members)
    plan = plan_archive([_describe(name, path, warn) for name, path in members])
    plan.write(output, keep_equal=keep_equal)


def _check_names(members: Sequence[tuple[str, StrPath]]) -> None:
    paths: dict[str, StrPath] = {}
    for name, path in members:
        if name in ("", ".", "..") or any(character in name for character in "/\0\n"):
            raise UsageError(
                f"'{path}': expected a plain file name for an archive member, found {name!r}"
            )
        if name in paths:
            raise UsageError(
                f"two archive members would have the name '{name}': '{paths[name]}' and "
                f"'{path}'; give one of them another name"
            )
        paths[name] = path


def _describe(name: str, path: StrPath, warn: Callable[[str], None] | None) -> NewMember:
    with InputFile(path) as source:
        if source.fileno() is None:
            raise UsageError(f"'{path}': an archive member must be a regular file; give files")
        noted = warn and (lambda reason: warn(f"'{path}': {reason}"))
        symbols = member_symbols(source.data, path=path, warn=noted)
        return NewMember(name, file_plan(path, len(source)), symbols)
