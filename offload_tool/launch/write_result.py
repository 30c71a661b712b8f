r"""What this process writes of a compile's result: fat binary, host object, depfile.

**The fat binary** is made as the driver's bundler would make it. What is not the plain case is left
to the driver's own program: a compressed bundle's bytes depend on its version of zstd, a package's
on LLVM's version.

**The host object** holds what the device passes make, and yet its pass runs beside them. The
compiler is given a placeholder to put into it. The object gets the true content when that is there,
in the layout that the compiler would have chosen (`splice_images`): the host pass waits for no
target, and its result depends on none.

**The depfile** has what all passes have read. The driver lets the host pass alone write one, so a
header that only device code includes is not in it. The names that device passes have beside are put
behind the host's in its rule, as the compiler has escaped them. Where there is none to add, the
file is the driver's::

    s.o: s.hip h.h \          <- the host pass's, as it is
      only_device.h           <- added; with -MP also a rule "only_device.h:" at the end

**What is there under their names**: an object is renamed to its name when it is complete. Where its
name is that of a device (a configuration check's ``-o /dev/null``), a pipe or a folder, that would
put a file into its place. A depfile the driver writes into the file that is there, through symbolic
links and for all hard links of it. In a folder that takes no new files, it writes both into the
files that are there. A file that may not be written it refuses, although another could be renamed
to its place. Source: clang 22.1.8, observed.
"""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload_tool.clang.job_plan import DriverJob

_VARIABLES = ("OFFLOAD_BUNDLER", "COMPRESSED_BUNDLE_")
"""Beginnings of the names of variables with which the bundler compresses, or says more."""
_NOTHING = "/dev/null"
PLACEHOLDER_FILE = os.path.join(os.path.dirname(__file__), "placeholder.txt")
"""What is embedded at first: of no usual size, and not so short that an optimizer would copy it.

It is the same file for all runs, so that a compiler cache knows the host pass again.
"""
_NAME = re.compile(rb"(?:\\[\s\S]|\$\$|[^\s\\])+")
_CONTINUED = re.compile(rb"\\\r?\n")
_RULE_END = re.compile(rb"(?<!\\)\n")


def _write_fat_binary(
    entries: Sequence[str], inputs: Sequence[str], output: str, alignment: int
) -> None:
    from offload_tool.formats.target.bundle_entry_id import BundleEntryID
    from offload_tool.operations.bundle import write_bundle

    items = [
        (BundleEntryID.parse(entry), None if name == _NOTHING else name)
        for entry, name in zip(entries, inputs, strict=True)
    ]
    # The driver has checked which targets go together.
    write_bundle(items, output, file_type="o", alignment=alignment)


def writer_of(words: Sequence[str], environ: Mapping[str, str]) -> Callable[[], None] | None:
    """Return what writes the bundle of a bundler's command; None where its program has to do it.

    What is returned raises OffloadError where the bundle cannot be written.
    """
    if any(name.startswith(_VARIABLES) for name in environ):
        return None
    alignment = 0
    entries: list[str] = []
    inputs: list[str] = []
    output = ""
    for word in words[1:]:
        option, equals, value = word.partition("=")
        if not equals:
            return None
        if option == "-targets":
            entries = value.split(",")
        elif option == "-input":
            inputs.append(value)
        elif option == "-output":
            output = value
        elif option == "-bundle-align" and value.isdigit():
            alignment = int(value)
        elif word != "-type=o":
            return None
    is_plain = (
        alignment > 0
        and len(entries) == len(inputs)
        and inputs[:1] == [_NOTHING]
        and inputs.count(_NOTHING) == 1
        and entries[0].startswith("host-")
    )
    if not is_plain:
        return None
    return functools.partial(_write_fat_binary, entries, inputs, output, alignment)


def can_wait(job: DriverJob) -> bool:
    """Return whether a job is a host pass whose object can get the device code later."""
    return (
        job.sort == "cc1"
        and "-emit-obj" in job.words
        and len(job.needs) == 1
        and len(job.embedded()) == 1
        and not any(word.startswith("-flto") for word in job.words)
    )


def embed_now(made: str, images: str, output: str) -> None:
    """Write the object `made`, with `images` in the place of the placeholder, to `output`.

    :raises ContentError: the compiler has laid it out in a way that is not known.
    :raises FileError: a file cannot be read or written.
    """
    from offload_tool.formats.objects.splice_images import plan_with_content
    from offload_tool.io import InputFile, replace_file

    with open(PLACEHOLDER_FILE, "rb") as file:
        placeholder = file.read()
    with InputFile(made) as host, InputFile(images) as content:
        plan = plan_with_content(host.data, placeholder, len(content), path=made)
        with replace_file(output) as out:
            plan.bound(host, [content]).write_to(out)


def union(host: bytes, devices: Iterable[bytes], *, phony: bool) -> bytes:
    """Return the depfile of the host pass with the names in those of device passes.

    `phony`: each name has an empty rule of its own, as with ``-MP``.
    """
    rule, end, rest = _first_rule(host)
    names = dict.fromkeys(_prerequisites(rule))
    added = [
        name
        for text in devices
        for name in _prerequisites(_first_rule(text)[0])
        if name not in names and names.setdefault(name) is None
    ]
    if not added:
        return host
    lines = b"".join(b" \\\n  " + name for name in added)
    more = b"".join(name + b":\n" for name in added) if phony else b""
    return rule + lines + (end or b"\n") + rest + more


def _first_rule(text: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a depfile behind its first rule: before the line break, the break, what follows."""
    for found in _RULE_END.finditer(text):
        return text[: found.start()], found[0], text[found.end() :]
    return text, b"", b""


def _prerequisites(rule: bytes) -> list[bytes]:
    joined = _CONTINUED.sub(b" ", rule)
    _, _, names = joined.partition(b": ")
    return _NAME.findall(names)


def why_not_replaced(name: str) -> str:
    """Return why a file cannot get its name when it is complete; "" where it can."""
    if name == "-":
        return "a result is standard output"
    folder = os.path.dirname(name) or "."
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        if not os.path.isdir(folder):
            return f"there is no folder '{folder}'"
    except OSError as error:
        return f"'{name}': {error.strerror}"
    else:
        if not stat.S_ISREG(mode):
            return f"'{name}' is no regular file"
        if not _is_writable(name, os.W_OK):
            return f"'{name}' cannot be written"
    return (
        ""
        if _is_writable(folder, os.W_OK | os.X_OK)
        else f"the folder '{folder}' cannot be written"
    )


def write_depfile(name: str, text: bytes) -> None:
    """Write a depfile; a file that has other names, too, keeps them.

    :raises OSError: it cannot be written.
    """
    if _has_other_names(name):
        with open(name, "wb") as file:
            file.write(text)
        return
    beside = f"{name}.{os.urandom(6).hex()}.tmp"
    try:
        with open(beside, "wb") as file:
            file.write(text)
        os.replace(beside, name)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


def _is_writable(name: str, mode: int) -> bool:
    return os.access(name, mode, effective_ids=True)


def _has_other_names(name: str) -> bool:
    try:
        found = os.lstat(name)
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) or found.st_nlink > 1
