"""The files that a command's arguments name: ``@file``, ``--config F``, ``-fprofile-use=F``, ...

The content of these files is an input of the command. Clang has hundreds of options that name
files, and plugins add more, so this module has no list: each name of an existing file counts.

A host link names objects, and libraries by path or name. ``-lNAME`` is ``libNAME.so`` or
``libNAME.a`` in the first folder that has one, ``-l:FILE`` is that file. An ``-L`` serves each
``-l``, before or after it; the linker's own folders come last. A linker script names more of both,
whatever its file is called. Only the linker itself knows all forms: `files_read`. Source: GNU ld
2.40, gold 1.16 and lld 22.1.8, observed.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from offload_tool.clang.options import (
    ATTACHED_FILE,
    CONFIGURATION,
    FOLDER,
    FOR_LINKER,
    FOR_OTHERS,
    LIBRARY,
    LINKER,
    LINKER_SCRIPT,
    MODULE_FOLDER,
    NO_FILE,
    OVERLAY,
    PRECOMPILED,
    PROGRAMS,
    READS,
    UNLISTED,
    VERSION_SCRIPT,
    does,
    prefixes,
    takes_next,
    values,
)
from offload_tool.clang.response_file import configuration_args, expand_command
from offload_tool.formats.magic import ARCHIVE, BITCODES, ELF
from offload_tool.io.file_digests import content_of
from offload_tool.io.paths import names_in

T = TypeVar("T")
_FOLDERS = ("--library-path", "--library-directory", "-L")
_LIBRARIES = ("--library", "-l")
_IS_STATIC = {
    **dict.fromkeys(("-Bstatic", "-dn", "-non_shared", "-static", "-static-pie"), True),
    **dict.fromkeys(("-Bdynamic", "-dy", "-call_shared"), False),
}
_NO_INPUT = frozenset(
    f"{dashes}{name}"
    for name in ("soname", "h", "entry", "undefined", "rpath", "rpath-link", "defsym", "wrap", "m")
    for dashes in ("-", "--")
)
"""Options of linkers alone whose value is in the next argument, and names no file to link."""
_SYSROOT = "--sysroot"
_INPUT = (*_FOLDERS, *_LIBRARIES, "-T", _SYSROOT)
LINKERS_FOLDERS = tuple(
    f"{root}/{folder}"
    for folder in (f"lib/{os.uname().machine}-linux-gnu", "lib64", "lib")
    for root in ("/usr/local", "", "/usr")
)
_OF_ROOT = re.compile(r"^(=|\$SYSROOT)")
_PHONY = re.compile(r"^(.+):$", re.MULTILINE)
_ESCAPED = re.compile(r"[\\$](.)")
_MAX_SCRIPT = 1 << 20
_LINKED = (b"\x7fELF", b"!<ar", b"!<th")
"""Begin objects, libraries and archives, most of what is linked."""
_OBJECTS = (ELF, ARCHIVE, *BITCODES)
"""Begin files of a link that name no others."""
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SEARCHED = re.compile(r"\bSEARCH_DIR\s*\(\s*([^()]*?)\s*\)")
_NAMED = re.compile(r"\b(?:INPUT|GROUP|STARTUP)\s*\(((?:[^()]|\([^()]*\))*)\)")
_SCRIPT_WORD = re.compile(r"\"[^\"]*\"|[^\s(),]+")
_FOLDER_FLAGS = prefixes(FOLDER)
_PARTS = re.compile(r"[=,]")
_LINKERS = ("lld", "ld.lld")
_PRECOMPILED = (".pch", ".gch")
"""``-include F`` silently reads F with such a suffix instead of F. Source: clang's user manual."""
_PROFILE = "default.profdata"
"""``-fprofile-use`` reads it from the working directory, or from the directory that it names.
Source: clang's user manual."""
_MAY_HIDE = re.compile("|".join(prefixes(OVERLAY | UNLISTED | CONFIGURATION)))
_MAY_NAME = re.compile("|".join(prefixes(PRECOMPILED)))
_NAMED_TRULY = re.compile(rb"use-external-names?[\"']?\s*:\s*[\"']?true\b")
MODULE_SUFFIX = ".pcm"
"""The suffix of the modules that clang finds by name in a directory. Source: clang's manual,
"Standard C++ Modules"."""


def possible_files(args: Iterable[str]) -> tuple[str, ...]:
    """Return a command's response files, and all parts of arguments that may name a file.

    All modules in a directory of such count, as the depfile names none, and so do all precompiled
    headers.
    """
    found = expand_command(args)
    named = _files_among(found.args)
    maps = filter(os.path.isfile, (arg[2:] for arg in found.args if arg.startswith("-I")))
    modules = (name for folder in module_folders(found.args) for name in _modules_in(folder))
    pchs = _precompiled_in(found.args)
    return tuple(dict.fromkeys([*found.files, *named, *maps, *modules, *pchs]))


def module_folders(args: Sequence[str]) -> tuple[str, ...]:
    """Return the directories of compiled modules that flags name."""
    return tuple(values(args, MODULE_FOLDER))


def unlisted_by(args: Iterable[str]) -> str:
    """Return the argument or the overlay due to which depfiles do not list all files read, or "".

    An overlay hides names unless each ``use-external-names``, and ``use-external-name`` of an
    entry, is true. Source: clang 22.1, observed; LLVM's VirtualFileSystem.cpp.
    """
    given = all_args(args)
    if not _MAY_HIDE.search("\0".join(given)):  # nearly always
        return ""
    parts = tuple(_front_end_args((*given, *_configured(given))))
    unlisted = (part for part in parts if does(part, UNLISTED))
    overlays = filter(_has_virtual_names, values(parts, OVERLAY))
    return next(itertools.chain(unlisted, overlays), "")


def _front_end_args(args: Iterable[str]) -> Iterator[str]:
    """Yield arguments as the front end gets them, without options that pass them on."""
    for arg in args:
        if arg.startswith("-Wp,"):
            yield from arg.split(",")[1:]
        elif arg != "-Xclang":
            yield arg.removeprefix("-Xclang=")


def _has_virtual_names(overlay: str) -> bool:
    text = content_of(overlay)
    others = _NAMED_TRULY.sub(b"", text)
    return b"use-external-name" in others


def _modules_in(folder: str) -> Iterator[str]:
    for parent, _, names in os.walk(folder):
        yield from (f"{parent}/{name}" for name in sorted(names) if name.endswith(MODULE_SUFFIX))


def _precompiled_in(args: Sequence[str]) -> Iterator[str]:
    """Yield the files in directories of precompiled headers, of which clang takes a suitable one.

    Source: clang 22.1.8, observed.
    """
    may_name = _MAY_NAME.search("\0".join(args))  # hardly ever
    for header in values([*_front_end_args(args)], PRECOMPILED) if may_name else ():
        for folder in filter(os.path.isdir, _with_precompiled(header)):
            yield from (f"{folder}/{name}" for name in sorted(names_in(folder)))


@functools.lru_cache(maxsize=256)
def _files_among(args: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_parts(args)))


def all_args(args: Iterable[str]) -> tuple[str, ...]:
    """Return a command's arguments, response files expanded; errors as of `expand_command`."""
    return expand_command(args).args


def options_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command without its leading arguments, which name the program."""
    return tuple(itertools.dropwhile(lambda arg: not arg.startswith(("-", "@")), command))


@functools.lru_cache(maxsize=64)
def include_folders(
    args: tuple[str, ...], flags: tuple[str, ...] = _FOLDER_FLAGS
) -> tuple[str, ...]:
    """Return the header directories that flags name; ``=`` before one means the sysroot."""
    found = []
    for arg, following in itertools.pairwise((*args, "")):
        for flag in flags:
            if arg == flag.removesuffix("=") and following:
                found.append(following)
            elif arg != flag and arg.startswith(flag):
                found.append(arg.removeprefix(flag))
    return tuple(dict.fromkeys(found))


def unlisted_by_linker(args: Iterable[str]) -> str:
    """Return the argument of a compile due to which a linker reads unnamed files, or ""."""
    found = []
    for before, arg in itertools.pairwise(("", *all_args(args))):
        if does(before, FOR_LINKER) and takes_next(before):
            found.append(arg)
        elif does(arg, FOR_LINKER):
            found += arg.split(",")[1:]
    return unlisted_in_link(found)


def unlisted_in_link(args: Sequence[str]) -> str:
    """Return the argument of a linker due to which it reads files that none names, or "".

    It searches for libraries, and for a version script that is not here; a script or a thin archive
    names more files. Source: lld 22.1.8, observed.
    """
    missing = (name for name in values(args, VERSION_SCRIPT) if not os.path.isfile(name))
    return next((arg for arg in args if _may_name_others(arg)), "") or next(missing, "")


def _may_name_others(arg: str) -> bool:
    if arg.startswith("-"):
        return does(arg, LIBRARY | LINKER_SCRIPT) or does(f"-{arg}", LIBRARY | LINKER_SCRIPT)
    begin = content_of(arg, len(ARCHIVE)) if os.path.isfile(arg) else b""
    return begin != b"" and not begin.startswith(_OBJECTS)


def _parts(args: Iterable[str]) -> Iterator[str]:
    for before, arg in itertools.pairwise(("", *args)):
        if arg.startswith("@"):
            yield arg[1:]
        elif not arg.startswith("-"):
            yield from _with_precompiled(arg)
            if does(before, PROGRAMS):
                yield from programs_in(arg)
        else:
            yield from _parts_of_flag(arg)


@functools.lru_cache(maxsize=4096)  # the passes of a compile have most of them
def _parts_of_flag(arg: str) -> tuple[str, ...]:
    is_unknown = does(arg, FOR_OTHERS) or not does(arg, NO_FILE)
    return tuple(_parts_of_option(arg)) if is_unknown else ()


def _parts_of_option(arg: str) -> Iterator[str]:
    parts = _PARTS.split(arg)[1:]
    yield from (part for part in parts if part)
    if len(parts) > 1:  # a file name may hold separators, too
        yield arg.partition("=")[2]
    for name in values([arg], ATTACHED_FILE):
        yield from _with_precompiled(name)
    for prefix in values([arg], PROGRAMS):
        yield from programs_in(prefix)
    if arg.startswith("-fprofile"):
        folder = arg.partition("=")[2]
        yield f"{folder}/{_PROFILE}" if folder else _PROFILE


def programs_in(prefix: str) -> tuple[str, ...]:
    """Return the names of the linkers that a compiler finds by ``-B`` or ``COMPILER_PATH``."""
    return tuple(f"{begin}{name}" for name in _LINKERS for begin in (prefix, f"{prefix}/"))


def _with_precompiled(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}{suffix}" for suffix in _PRECOMPILED)


def looked_up(args: Sequence[str]) -> Iterator[str]:
    """Yield the files that the driver itself looks up, as arguments name them or others beside.

    By them it selects the jobs' options: whether ``-include F`` reads a precompiled header, which
    may be any file in a directory ``F.gch``, and what kind of profile ``-fprofile-use=F`` reads.
    Source: clang 22.1.8, observed: its system calls for each option of ``--autocomplete=-``.
    """
    yield from values(args, READS)
    for arg in args:
        if does(arg, READS):
            yield from _parts_of_flag(arg)
    for name in values(args, PRECOMPILED):
        yield from (f"{name}{suffix}" for suffix in _PRECOMPILED)
    yield from _precompiled_in(args)


# -- host links ---------------------------------------------------------------------------


def linked_files(
    args: Iterable[str], find: Callable[[str], T | None], folders: Sequence[str] = ()
) -> Iterator[T]:
    """Yield what `find` returns, if not None, for each file that a link's arguments name."""
    searched, files, root = _parsed(link_args(args))
    searched += (*folders, *(root + own for own in LINKERS_FOLDERS if root), *LINKERS_FOLDERS)
    seen = set[str]()
    for names, places in files:
        paths = [os.path.join(at, name) for at in places or searched for name in names]
        for path in paths:
            if (file := find(path)) is not None:
                if path not in seen:
                    yield file
                    files += _named_in_script(path, searched)
                seen.add(path)
                break


def link_folders(args: Iterable[str]) -> list[str]:
    """Return the folders in which a link's arguments let it search for libraries."""
    return _parsed(link_args(args))[0]


_File: TypeAlias = tuple[tuple[str, ...], Sequence[str]]
"""The names of a file in the order of preference, and where it is; "" is here, nothing ``-L``."""


def _parsed(args: Iterable[str]) -> tuple[list[str], list[_File], str]:
    """Return the folders, the files and the sysroot that a linker's arguments name."""
    folders: list[str] = []
    files: list[_File] = []
    is_static = False
    root = ""
    words = iter(args)
    for word in words:
        option = next((each for each in (*_FOLDERS, *_LIBRARIES) if word.startswith(each)), None)
        if option is not None:
            value = word.removeprefix(option) or next(words, "")
            value = value.removeprefix("=") if option.startswith("--") else value
            if option in _FOLDERS:
                folders.append(value)
            else:
                files.append((_names_of(value, is_static=is_static), ()))
        elif (name := word.replace("--", "-", 1)) in _IS_STATIC:
            is_static = _IS_STATIC[name]
        elif word == _SYSROOT or word.startswith(f"{_SYSROOT}="):
            root = (word.removeprefix(_SYSROOT)[1:] or next(words, "")).rstrip("/")
        elif does(word, LINKER_SCRIPT):
            files += (((name,), ("",)) for name in values([word], LINKER_SCRIPT))
        elif word and word[0] not in "-@":
            files.append(((word,), ("",)))
    return [_OF_ROOT.sub(lambda _: root, folder) for folder in folders], files, root


def link_args(args: Iterable[str]) -> Iterator[str]:
    """Yield what the linker gets, except outputs and names of no file (``-soname libx.so``)."""
    given = all_args(args)
    # There, "$" puts a library behind all others.
    begin = (word.removeprefix("$") for word in _configured(given))
    words = iter(all_args(_passed_on((*begin, *given))))
    for word in words:
        name, is_given, _ = word.partition("=")
        if does(word, LINKER) or name in _NO_INPUT or (takes_next(word) and word not in _INPUT):
            if not is_given:
                next(words, None)
        else:
            yield word


def _configured(args: Sequence[str]) -> Iterator[str]:
    """Yield the arguments in the configuration files that arguments name."""
    return itertools.chain(*map(configuration_args, values(args, CONFIGURATION)))


def _passed_on(args: Iterable[str]) -> Iterator[str]:
    for arg in args:
        if arg.startswith("-Wl,"):
            yield from arg.split(",")[1:]
        elif arg.startswith("--for-linker="):
            yield arg.partition("=")[2]
        elif arg not in ("-Xlinker", "--for-linker"):
            yield arg


def linker_depfile(args: Iterable[str]) -> str:
    """Return the depfile that a link's flags let the linker write, "" if there is none."""
    found = ""
    for word, following in itertools.pairwise((*_passed_on(all_args(args)), "")):
        name, is_given, value = word.partition("=")
        if name in ("--dependency-file", "-dependency-file"):
            found = value if is_given else following
    return found


def files_read(depfile: str) -> Iterator[str]:
    """Yield the existing files that a linker's depfile names, each in a phony rule.

    Source: lld escapes names, GNU ld and gold do not. Temporary files are gone.
    """
    with open(depfile, "rb") as file:
        names = _PHONY.findall(os.fsdecode(file.read()))
    for name in dict.fromkeys(names):
        yield from filter(os.path.isfile, dict.fromkeys((name, _ESCAPED.sub(r"\1", name))))


def _named_in_script(path: str, folders: list[str]) -> list[_File]:
    """Return the files that a linker script names; add its folders to `folders`."""
    try:
        with open(path, "rb") as file:
            begin = file.read(4)
            if begin in _LINKED:
                return []
            begin += file.read(_MAX_SCRIPT)
    except OSError:
        return []
    if b"\0" in begin:
        return []
    files: list[_File] = []
    text = _COMMENT.sub(" ", os.fsdecode(begin))
    folders += (name.strip('"') for name in _SEARCHED.findall(text))
    for command in _NAMED.findall(text):
        for word in _SCRIPT_WORD.findall(command):
            name = word.strip('"')
            if name.startswith("-l"):
                files.append((_names_of(name[2:], is_static=False), ()))
            elif name != "AS_NEEDED":
                files.append(((name,), ("", os.path.dirname(path), *folders)))
    return files


def _names_of(library: str, *, is_static: bool) -> tuple[str, ...]:
    if library.startswith(":"):
        return (library[1:],)
    return tuple(f"lib{library}{suffix}" for suffix in ([] if is_static else [".so"]) + [".a"])
