"""What tells one compiler from another, without paths: part of each signature.

The version text alone is not enough. The output depends as well on the words that stand
after the compiler in ``OFFLOAD_CLANG``, on the lld that links device code, on configuration
files that clang reads by itself, and on what a wrapper script adds. All of these are told by
what they hold, so that two machines with the same programs agree.

Programs are told apart by what they say of themselves, and by

- the digest of their text where they are scripts (``#!``);
- their build ID where their linker gave them one. Source: the note ``NT_GNU_BUILD_ID`` of
  the generic ABI's GNU extensions. It is as good as a digest, and read in no time.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.errors import OffloadError
from offload_tool.files import InputFile
from offload_tool.formats.magics import ELF
from offload_tool.formats.objects.elf import ELF64_LITTLE, PT_NOTE, read_elf_segments

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "all_configuration_files",
    "command_identity",
    "configuration_files",
    "configuration_identity",
    "file_digest",
    "identity_text",
    "is_script",
    "program_identity",
    "text_digest",
]

_SCRIPT = b"#!"
_ELF_64 = ELF + b"\x02\x01"
_NT_GNU_BUILD_ID = 3
_CONFIGURATION = re.compile(r"^Configuration file: (?P<path>.+)$", re.MULTILINE)
_PLAIN_NAME = re.compile(r"clang(-\d+)?")
_CONFIG_FLAGS = ("--config", "-config")
_MOST_INCLUDED = 64


def identity_text(parts: Iterable[str]) -> str:
    """Give one line of what is known; it ends nowhere else than it seems to."""
    return "; ".join(part.replace(";", "\\;") for part in parts if part)


def configuration_files(answer: str) -> list[str]:
    """Give the files that clang says it has read by itself; see ``clang --version``."""
    return [match["path"].strip() for match in _CONFIGURATION.finditer(answer)]


def command_identity(command: Sequence[str], path: str) -> list[str]:
    """Give what stands for the words of a compiler command, each of which is a text.

    Programs are looked up in the folders of `path`. A plain name such as ``clang-22`` says
    nothing; ``clang++`` and ``riscv64-linux-gnu-clang`` are other modes and targets.
    """
    found = []
    words = iter(command)
    for word in words:
        program = None if word.startswith(("-", "@")) else shutil.which(word, path=path)
        if program is not None:
            name = Path(word).name
            parts = ["" if _PLAIN_NAME.fullmatch(name) else name, program_identity(program)]
            found.append(" ".join(filter(None, parts)))
        elif word in _CONFIG_FLAGS:  # clang tells which files it reads
            next(words, None)
        elif word.startswith(tuple(f"{flag}=" for flag in _CONFIG_FLAGS)):
            continue
        elif word.startswith("@") and Path(word[1:]).is_file():
            found.append(f"@{file_digest(word[1:])}")
        else:
            found.append(word)
    return [word for word in found if word]


def is_script(program: str) -> bool:
    """Tell whether a program is a text for another program to run."""
    try:
        with Path(program).open("rb") as opened:
            return opened.read(len(_SCRIPT)) == _SCRIPT
    except OSError:
        return False


def program_identity(program: str) -> str:
    """Give a script's digest or a program's build ID; empty where there is neither."""
    try:
        with Path(program).open("rb") as opened:
            head = opened.read(len(_ELF_64))
            if head.startswith(_SCRIPT):
                return f"script {_digest(head + opened.read())}"
            if head != _ELF_64:
                return ""
        with InputFile(program) as source:
            return _build_id(source.data)
    except (OSError, OffloadError):
        return ""


def _build_id(data: memoryview) -> str:
    for segment in read_elf_segments(data):
        if segment.p_type == PT_NOTE:
            content = data[segment.p_offset : segment.p_offset + segment.p_filesz]
            for name, number, description in ELF64_LITTLE.unpack_notes(content):
                if (name, number) == (b"GNU\0", _NT_GNU_BUILD_ID):
                    return f"build ID {description.hex()}"
    return ""


def file_digest(path: str | os.PathLike[str]) -> str:
    """Give the digest of a file's content, or ``missing``; remembered while it looks the same."""
    try:
        found = os.stat(path)  # noqa: PTH116 - as the key of what is remembered
    except OSError:
        return "missing"
    return _file_digest(os.fspath(path), found.st_mtime_ns, found.st_size, found.st_ino)


@functools.lru_cache(maxsize=4096)
def _file_digest(path: str, *_: int) -> str:
    try:
        return _digest(Path(path).read_bytes())
    except OSError:
        return "missing"


def configuration_identity(paths: Iterable[str]) -> list[str]:
    """Give the digests of configuration files, and of those that they include by ``@file``."""
    return [file_digest(path) for path in all_configuration_files(paths)]


def all_configuration_files(paths: Iterable[str]) -> list[str]:
    """Give configuration files and those that they include by ``@file``.

    Source: Clang Compiler User's Manual, "Configuration files": names in them are relative
    to the file that includes, and ``<CFGDIR>`` is its folder.
    """
    queue = list(dict.fromkeys(paths))
    for path in queue:  # grows
        if len(queue) < _MOST_INCLUDED:
            queue += [name for name in _included(Path(path)) if name not in queue]
    return queue


def _included(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            words = line.split()
        names = (
            word[1:].replace("<CFGDIR>", str(path.parent)) for word in words if word[:1] == "@"
        )
        found += [os.path.join(path.parent, name) for name in names]  # noqa: PTH118 - keeps absolute ones
    return found


def text_digest(text: str) -> str:
    """Give the digest of a text."""
    return _digest(text.encode(errors="surrogateescape"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
