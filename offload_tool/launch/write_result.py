r"""Writes a compile's result in this process: fat binary, host object, depfile, messages.

**The fat binary** equals that of the driver's bundler. Other cases than the plain one stay with the
driver's own program: a compressed bundle's bytes depend on its version of zstd, a package's on
LLVM's version.

**The host object** embeds the output of the device passes, yet its pass runs in parallel with them.
The compiler embeds a placeholder; `splice_images` later replaces it by the real content, in the
layout that the compiler would have chosen. The host pass waits for no target, and its result
depends on none.

**The depfile** lists the files that any pass read. The driver's covers the host pass alone, and
lacks headers that only device code includes. This module appends those to the host's rule, escaped
as the compiler did. Without any, the file is the driver's::

    s.o: s.hip h.h \          <- the host pass's, unchanged
      only_device.h           <- added; with -MP also a rule "only_device.h:" at the end

**The messages** of the passes are merged. The host pass prints what users know from a plain
compiler, so its text comes first, unchanged. Only new messages of device passes follow, under a
line with their target IDs. A message extends from one first line to the next, with the preceding
includes, its notes, and its source lines; colours do not count. Source: clang 21 to 23, observed.

**Existing files**: a complete object is renamed to its name. If the name is a device (a
configuration check's ``-o /dev/null``), a pipe or a folder, renaming would replace it. The driver
writes a depfile into the existing file, through symbolic links and for all its hard links. In a
folder that allows no new files, the driver writes both into the existing files. It rejects a
read-only file, although a rename could replace it. Source: clang 22.1.8, observed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from offload_tool.io.file_digests import content_of
from offload_tool.io.paths import replace_small_file

if TYPE_CHECKING:
    from offload_tool.clang.job_plan import DriverJob
    from offload_tool.io import InputFile

_VARIABLES = ("OFFLOAD_BUNDLER", "COMPRESSED_BUNDLE_")
"""Prefixes of variables that make the bundler compress, or print more."""
_DEV_NULL = "/dev/null"
PLACEHOLDER_FILE = os.path.join(os.path.dirname(__file__), "placeholder.txt")
"""The file embedded at first: of an unusual size, and too long for an optimizer to copy it. It is
the same in all runs, so that a compiler cache recognises the host pass."""
_NAME = re.compile(rb"(?:\\[\s\S]|\$\$|[^\s\\])+")
_CONTINUED = re.compile(rb"\\\r?\n")
_RULE_END = re.compile(rb"(?<!\\)\n")
# Compiled on first use: most compiles print nothing.
_COLOUR = rb"\x1b\[[0-9;]*[mK]"
_FIRST = rb"(.+?: )?(fatal error|error|warning|remark): "
_AT_LINE = rb".*\d\)? ?: (fatal )?error: "
_INCLUDED = rb"In (file included from|module '.*' imported from) |  +from .*:\d+[:,]$"
_COUNT = rb"\d+ (warnings?|errors?)( and \d+ errors?)? generated( when compiling for .*)?\."


def bundle_writer(args: Sequence[str], environ: Mapping[str, str]) -> Callable[[], None] | None:
    """Return the function that writes a bundler command's bundle; None if its program must do it.

    The function raises OffloadError if the bundle cannot be written.
    """
    if any(name.startswith(_VARIABLES) for name in environ):
        return None
    options: dict[str, list[str]] = {}
    for arg in args[1:]:
        option, _, value = arg.partition("=")
        options.setdefault(option, []).append(value)
    entries = options.get("-targets", [""])[-1].split(",")
    inputs, outputs = options.get("-input", []), options.get("-output", [])
    alignment = options.get("-bundle-align", [""])[-1]
    is_plain = (
        options.keys() <= {"-type", "-targets", "-input", "-output", "-bundle-align"}
        and options.get("-type") == ["o"]
        and alignment.isdigit()
        and int(alignment) > 0
        and len(entries) == len(inputs)
        and len(outputs) == 1
        and inputs[:1] == [_DEV_NULL]
        and inputs.count(_DEV_NULL) == 1
        and entries[0].startswith("host-")
    )
    if not is_plain:
        return None

    def write() -> None:
        from offload_tool.formats.targets.bundle_entry_id import BundleEntryID
        from offload_tool.operations.bundle import write_bundle

        files = [None if name == _DEV_NULL else name for name in inputs]
        items = list(zip(map(BundleEntryID.parse, entries), files, strict=True))
        # The driver has checked which targets go together.
        write_bundle(items, outputs[0], file_type="o", alignment=int(alignment))

    return write


def can_embed_later(job: DriverJob) -> bool:
    """Return True if a job is a host pass whose object can get the device code later."""
    return (
        job.kind == "cc1"
        and "-emit-obj" in job.args
        and len(job.needs) == 1
        and len(job.embedded()) == 1
        and not any(arg.startswith("-flto") for arg in job.args)
    )


def embed_images(object_file: str, images: str, output: str) -> None:
    """Write an object to `output`, with its placeholder replaced by the file `images`.

    :raises ContentError: the compiler used an unknown layout.
    :raises FileError: a file cannot be read or written.
    """
    from offload_tool.io import InputFile

    with InputFile(object_file) as host:
        old = b"" if embeds_nothing(bytes(host.data)) else content_of(PLACEHOLDER_FILE)
        exchange_images(host, old, images, output)


def embeds_nothing(host: bytes) -> bool:
    """Return whether an object with the placeholder, if with any, has none.

    The compiler embeds no device code if a source has no kernels or device variables.
    """
    return content_of(PLACEHOLDER_FILE) not in host


def exchange_images(host: InputFile, old: bytes, images: str, output: str) -> None:
    """As `embed_images`, for an object with the content `old`, b"" if it has no device code."""
    from offload_tool.formats.objects.splice_images import plan_with_content
    from offload_tool.io import InputFile, replace_file

    with InputFile(images) as content, replace_file(output) as out:
        if old:
            plan = plan_with_content(host.data, old, content, path=host.path)
            plan.bound(host).write_to(out)
        else:
            out.copy(host)


def merge_depfiles(host: bytes, devices: Iterable[bytes], *, phony: bool) -> bytes:
    """Return the host pass's depfile, extended by the names in those of device passes.

    `phony`: each name also gets an empty rule, as with ``-MP``.
    """
    different = {text.partition(b": ")[2]: text for text in devices}
    different.pop(host.partition(b": ")[2], None)
    if not different:
        return host
    rule, end, rest = _first_rule(host)
    names = dict.fromkeys(_prerequisites(rule))
    added = [
        name
        for text in different.values()
        for name in _prerequisites(_first_rule(text)[0])
        if name not in names and names.setdefault(name) is None
    ]
    if not added:
        return host
    lines = b"".join(b" \\\n  " + name for name in added)
    more = b"".join(name + b":\n" for name in added) if phony else b""
    return rule + lines + (end or b"\n") + rest + more


def _first_rule(text: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a depfile after its first rule: the rule, its line break, the rest."""
    for found in _RULE_END.finditer(text):
        return text[: found.start()], found[0], text[found.end() :]
    return text, b"", b""


def _prerequisites(rule: bytes) -> list[bytes]:
    joined = _CONTINUED.sub(b" ", rule)
    _, _, names = joined.partition(b": ")
    return _NAME.findall(names)


def why_not_replaced(name: str) -> str:
    """Return why a complete file cannot be renamed to this name; "" if it can."""
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
    is_writable = _is_writable(folder, os.W_OK | os.X_OK)
    return "" if is_writable else f"the folder '{folder}' cannot be written"


def write_depfile(name: str, text: bytes) -> None:
    """Write a depfile; an existing file with other names keeps them.

    :raises OSError: it cannot be written.
    """
    if _has_other_names(name):
        with open(name, "wb") as file:
            file.write(text)
        return
    replace_small_file(name, text)


def _is_writable(name: str, mode: int) -> bool:
    return os.access(name, mode, effective_ids=True)


def _has_other_names(name: str) -> bool:
    try:
        found = os.lstat(name)
    except OSError:
        return False
    return stat.S_ISLNK(found.st_mode) or found.st_nlink > 1


def is_error_in_source(text: bytes) -> bool:
    """Return whether a failed pass's messages are complete and have an error at a line of a file.

    An error without a line may be of a full disk, which also cuts messages off.
    """
    lines = re.sub(_COLOUR, b"", text).split(b"\n")
    is_complete = lines[-1] == b"" and bool(re.fullmatch(_COUNT, b"".join(lines[-2:])))
    return is_complete and any(re.match(_AT_LINE, line) for line in lines)


def merge_messages(host: bytes, devices: Mapping[str, bytes]) -> bytes:
    """Return the host's messages, then those that only passes of some target IDs print."""
    host_messages = set(_messages(host))
    new: dict[bytes, list[str]] = {}
    for target, text in devices.items():
        for message in dict.fromkeys(_messages(text)):
            if message not in host_messages:
                new.setdefault(message, []).append(target)
    found = [host]
    before: list[str] = []
    for message, targets in new.items():
        if targets != before:
            found.append(f"In device code for {', '.join(targets)}:\n".encode())
            before = targets
        found.append(message)
    return b"".join(found)


def _messages(text: bytes) -> Iterator[bytes]:
    """Yield each message of a text with all its lines, without the summary counts."""
    kept: list[bytes] = []
    includes: list[bytes] = []
    for line in text.splitlines(keepends=True):
        plain = re.sub(_COLOUR, b"", line).rstrip(b"\n")
        if re.match(_INCLUDED, plain):
            includes.append(line)
            continue
        if re.match(_FIRST, plain) or re.fullmatch(_COUNT, plain):
            if kept:
                yield b"".join(kept)
            kept = []
        if not re.fullmatch(_COUNT, plain):
            kept += [*includes, line]
        includes = []
    if kept or includes:
        yield b"".join([*kept, *includes])
