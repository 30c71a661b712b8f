r"""The files that a pass has read.

The depfile of a compile lists the files that it has read. If it does not name the source, it is
another job's (``-save-temps``), or a compiler cache has restored the output without one, and the
preprocessor runs. A depfile replaces backslashes in names by slashes; the original name is searched
in the command's arguments, then on disk. Files that the assembler reads are in no depfile
(`source_text`). Source: clang 22.1.8, observed.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from offload_tool.clang.argument_files import all_args
from offload_tool.clang.depfile import depfile_command, read_depfile
from offload_tool.clang.environment import ImplicitInputs
from offload_tool.clang.options import ATTACHED_FILE, FOLDER, HOST_IR, prefixes
from offload_tool.errors import CompilerError, OffloadError
from offload_tool.io.paths import names_in, remove
from offload_tool.io.process import capture
from offload_tool.passes.command import Command
from offload_tool.toolchain.driver_cache import cached_front_end, device_libraries


def files_read(command: Command, environment: Mapping[str, str]) -> list[str]:
    """Return the files that a compile has read, by depfile or preprocessor; raise CompilerError."""
    read = listed_files(command) or preprocess(command, environment)
    if read is None:
        _check_without_depfile(command, environment)
        raise not_listed(command.depfile, command.source)
    return read


def _check_without_depfile(command: Command, environment: Mapping[str, str]) -> None:
    """Raise CompilerError for what clang 22 reports only then: ``#embed`` names a missing file."""
    with suppress(OSError):
        result = capture(depfile_command(command.without_depfile.argv()), environment)
        for line in os.fsdecode(result.errors).splitlines():
            if "error: " in line:
                raise CompilerError(f"{line.strip()}; with a depfile, the compiler is silent")


def not_listed(depfile: str, source: str) -> CompilerError:
    """Return the error of a compile whose depfile does not list its source."""
    return CompilerError(
        f"the compiler did not list the files that it read for '{source}'; expected a depfile "
        f"'{depfile}' that lists the source"
    )


def preprocess(command: Command, environment: Mapping[str, str]) -> list[str] | None:
    """Return the files that the preprocessor reads; None if it fails. Remove the depfile."""
    try:
        remove(command.depfile)
        status = capture(depfile_command(command.argv()), environment).status
        return listed_files(command) if status == 0 else None  # the compile itself reports errors
    except OSError:
        return None
    finally:
        remove(command.depfile)


def listed_files(command: Command) -> list[str] | None:
    """Return the files in the depfile of a compile; None if it is another compile's."""
    return files_in_depfile(command.depfile, command.source, command.argv())


def files_in_depfile(depfile: str, source: str, args: Iterable[str]) -> list[str] | None:
    """Return the files in a depfile; None if it does not list the source of the compile `args`."""
    try:
        names = with_backslashes(read_depfile(depfile), args)
    except OffloadError:
        return None
    known = {posixpath.normpath(name) for name in names}
    return names if posixpath.normpath(source) in known else None


def general_args(args: Iterable[str], without: Collection[str]) -> list[str]:
    """Return a compile's arguments without macros, inputs, output and what sources differ in."""
    found: list[str] = []
    before = option = ""
    for arg in args:
        passed_on = before.startswith("-X")  # to the front end: the two are one option
        if arg.startswith("-cuid="):
            found.append("-cuid=0")
        elif passed_on and option == HOST_IR:
            found.append(os.devnull)
        elif passed_on or not (
            arg in without or arg == "-o" or arg.startswith("-D") or before == "-D"
        ):
            found.append(arg)
        before, option = arg, arg if passed_on else option
    return found


def implicit_inputs_of(args: Iterable[str], environment: Mapping[str, str]) -> ImplicitInputs:
    """Return the folders and libraries that the compiler of these arguments finds on its own."""
    general = general_args(all_args(args), ())
    found = cached_front_end(general, environment)
    return found._replace(libraries=device_libraries(general, environment))


def with_backslashes(names: Iterable[str], args: Iterable[str]) -> list[str]:
    """Restore backslashes in a depfile's names; return both files that a name may mean."""
    spelled = {
        _with_slashes(each): each for arg in args if "\\" in arg for each in _backslash_names(arg)
    }
    found: dict[str, None] = {}
    for name in names:
        on_disk = [each for each in _names_on_disk(name, spelled) if os.path.exists(each)]
        if os.path.exists(name):
            on_disk.append(name)
        root = "/" if name.startswith("/") else ""
        found.update(dict.fromkeys(on_disk or [*_below(root, name.lstrip("/"))] or [name]))
    return list(found)


def _backslash_names(arg: str) -> Iterator[str]:
    """Yield the names in an argument that hold backslashes, and their directories."""
    attached = filter(arg.startswith, prefixes(FOLDER | ATTACHED_FILE))
    for name in (arg, arg.partition("=")[2], *(arg[len(option) :] for option in attached)):
        folder = os.path.dirname(name)
        yield from (each for each in (name, folder) if "\\" in each)


def _names_on_disk(name: str, spelled: dict[str, str]) -> Iterator[str]:
    for slashed, each in spelled.items():
        if name == slashed:
            yield each
        elif name.startswith(f"{slashed}/"):
            yield each + name[len(slashed) :]


def _below(folder: str, rest: str) -> Iterator[str]:
    """Yield the files below a directory whose names, with slashes, are `rest`."""
    head, _, tail = rest.partition("/")
    if tail and os.path.isdir(os.path.join(folder, head)):
        yield from _below(os.path.join(folder, head), tail)
    for entry in sorted(names_in(folder or ".")):
        if "\\" not in entry:
            continue
        path, slashed = os.path.join(folder, entry), _with_slashes(entry)
        if rest == slashed:
            yield path
        elif rest.startswith(f"{slashed}/"):
            yield from _below(path, rest[len(slashed) + 1 :])


def _with_slashes(name: str) -> str:
    return name.replace("\\", "/")
