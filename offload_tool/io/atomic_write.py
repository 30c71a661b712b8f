"""Write outputs atomically: each appears complete or not at all.

Each is written to a temporary file next to it and renamed; several are replaced together.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from offload_tool.errors import FileError, UsageError
from offload_tool.io.input_file import InputFile, check_maps
from offload_tool.io.limits import run_budget
from offload_tool.io.output_file import PERMISSIONS, OutputFile
from offload_tool.io.paths import STDOUT, StrPath, closing, naming, remove, sibling
from offload_tool.io.signals import check_stopped, shielded

_DESCRIPTORS = "/proc/self/fd"
_READ_CHUNK = 1 << 20
_WRITABLE = 0o222
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@contextmanager
def replace_file(path: StrPath, *, keep_equal: bool = False) -> Iterator[OutputFile]:
    """Write the file at `path`: it is created or replaced when the block succeeds.

    On an exception the old file is unchanged and nothing new remains. A symbolic link is followed;
    a file that is not regular (``/dev/null``, a pipe) is written directly. The new file has the old
    one's permissions, without set-user-ID, set-group-ID and sticky bits. A read-only file is not
    replaced. With `keep_equal`, an old file of equal content and its times are left untouched;
    `unchanged` is set after the block.

    :raises FileError: the file cannot be created or written, or an input became shorter.
    """
    with replace_all([path], keep_equal=keep_equal) as (output,):
        yield output


@contextmanager
def replace_all(
    paths: Sequence[StrPath], *, keep_equal: bool = False
) -> Iterator[list[OutputFile]]:
    """Write several files as `replace_file` does, or none; raise UsageError if two are one file."""
    outputs: list[OutputFile] = []
    replacements: list[_Replacement] = []
    with ExitStack() as stack:
        for path in paths:
            with naming(path):
                if _is_written_directly(path):
                    outputs.append(stack.enter_context(_open_directly(path)))
                else:
                    with shielded():
                        replacements.append(stack.enter_context(_Replacement(path)))
                    outputs.append(replacements[-1].file)
        _check_distinct(replacements)
        try:
            yield outputs
        except OSError as error:  # of a file not written through an OutputFile
            raise FileError(error.filename or paths[0], error) from error
        # The first file is replaced only when no later step can run out of disk space.
        for replacement in replacements:
            replacement.complete(keep_equal=keep_equal)
        check_maps()
        check_stopped()
        with shielded():
            for replacement in replacements:
                replacement.link()
            for replacement in replacements:
                replacement.rename()


def _is_written_directly(path: StrPath) -> bool:
    """Return whether `path` is standard output or is no regular file; raise OSError."""
    if str(path) == STDOUT:
        return True
    try:
        # Opening an empty name later reports that no such file exists.
        return not stat.S_ISREG(os.stat(path or os.curdir).st_mode)
    except FileNotFoundError:
        return False


def _check_distinct(replacements: Sequence[_Replacement]) -> None:
    paths: dict[str, StrPath] = {}
    for replacement in replacements:
        if replacement.final in paths:
            other = paths[replacement.final]
            raise UsageError(
                f"'{other}' and '{replacement.path}' are one output; give each a file of its own"
            )
        paths[replacement.final] = replacement.path


@contextmanager
def _open_directly(path: StrPath) -> Iterator[OutputFile]:
    # Opening standard output again would overwrite its content.
    own = str(path) == STDOUT
    with closing(os.dup(1) if own else os.open(path, os.O_WRONLY | os.O_CLOEXEC)) as descriptor:
        yield OutputFile(path, descriptor, seekable=False, budget=run_budget())


class _Replacement:
    """A new file next to the one that it will replace."""

    def __init__(self, path: StrPath) -> None:
        self.path = path
        self.final = os.path.realpath(path)
        try:
            old: int | None = os.stat(self.final).st_mode
        except FileNotFoundError:
            old = None
        self._is_read_only = old is not None and not old & _WRITABLE
        self._temporary = sibling(self.final, f".{os.urandom(6).hex()}.tmp")
        self._descriptor, self._named = _open_temporary(self._temporary)
        self.file = OutputFile(path, self._descriptor, seekable=True, budget=run_budget())
        self.file.mode = None if old is None else old & PERMISSIONS

    def complete(self, *, keep_equal: bool) -> None:
        """Set the file's size and permissions, or detect that the old file can stay."""
        self.file.finish()
        if keep_equal:
            with suppress(OSError), open(self.final, "rb", buffering=0) as old:
                self.file.unchanged = same_bytes(self._descriptor, old.fileno())
        if self.file.unchanged:
            return
        if self._is_read_only:
            raise FileError(self.path, "is read-only; make it writable, or remove it")
        if self.file.mode is not None:
            self.file.set_mode(self.file.mode)

    def link(self) -> None:
        if self._named or self.file.unchanged:
            return
        own = f"{_DESCRIPTORS}/{self._descriptor}"
        try:
            # Python follows the link only if it gets a directory descriptor; that is not used.
            os.link(own, self._temporary, src_dir_fd=self._descriptor)
            self._named = True
        except OSError:  # the system has no such links
            self._copy(own)

    def _copy(self, own: str) -> None:
        """Write the complete file `own` once more, with a name."""
        with naming(self.path):
            descriptor = os.open(self._temporary, _NEW, 0o666)
        self._named = True
        with closing(descriptor), InputFile(own) as source:
            out = OutputFile(self.path, descriptor, seekable=True)
            out.copy(source)
            if self.file.mode is not None:
                out.set_mode(self.file.mode)

    def rename(self) -> None:
        if not self.file.unchanged:
            with naming(self.path):
                os.replace(self._temporary, self.final)
            self._named = False

    def __enter__(self) -> _Replacement:
        return self

    def __exit__(self, *_: object) -> None:
        with shielded():
            os.close(self._descriptor)
            if self._named:
                remove(self._temporary)


def _open_temporary(path: str) -> tuple[int, bool]:
    """Open a file next to `path`: without a name, so that a kill removes it, or named `path`."""
    if os.path.isdir(_DESCRIPTORS):  # `link` names it through this folder
        with suppress(OSError):  # the file system does not support it
            flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
            return os.open(os.path.dirname(path), flags, 0o666), False
    return os.open(path, _NEW, 0o666), True


def same_bytes(descriptor: int, other: int) -> bool:
    """Return whether two open files are regular and equal; raise OSError."""
    status, size = os.fstat(other), os.fstat(descriptor).st_size
    if not stat.S_ISREG(status.st_mode) or status.st_size != size:
        return False
    ours, theirs = bytearray(_READ_CHUNK), bytearray(_READ_CHUNK)
    for position in range(0, size, _READ_CHUNK):
        wanted = min(size - position, _READ_CHUNK)
        if os.preadv(descriptor, [ours], position) != wanted:
            return False
        if os.preadv(other, [theirs], position) != wanted or ours != theirs:
            return False
    return True
