"""A process around NVIDIA's libnvJitLink, with nvlink's arguments: a script, never imported.

    python nvjitlink.py LIBRARY --version
    python nvjitlink.py LIBRARY OPTION... FILE... -o OUTPUT

Options begin with a dash and go to the library, which knows ``-arch=sm_NN``. The suffix of an input
sets its type: cubins, fat binaries, PTX, and NVIDIA's own host libraries. Source: ``nvJitLink.h``
of CUDA 12.9 and 13.5, whose numbers are the same.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

_TYPES = {".cubin": 1, ".ptx": 2, ".fatbin": 4, ".o": 5, ".a": 6}


class _FailedError(Exception):
    """A call of the library failed; the message names it."""


def _call(library: Any, name: str, *arguments: Any) -> None:
    status = getattr(library, name)(*arguments)
    if status:
        raise _FailedError(f"{name} failed with status {status}")


def _version(library: Any) -> str:
    major, minor = ctypes.c_uint(), ctypes.c_uint()
    _call(library, "nvJitLinkVersion", ctypes.byref(major), ctypes.byref(minor))
    return f"libnvJitLink {major.value}.{minor.value}"


def _log(library: Any, handle: Any, which: str) -> str:
    size = ctypes.c_size_t()
    if getattr(library, f"nvJitLinkGet{which}LogSize")(handle, ctypes.byref(size)):
        return ""
    text = ctypes.create_string_buffer(size.value + 1)
    if getattr(library, f"nvJitLinkGet{which}Log")(handle, text):
        return ""
    return text.value.decode("utf-8", "replace").strip()


def _link(library: Any, options: list[str], files: list[str], output: str) -> None:
    handle = ctypes.c_void_p()
    args = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    _call(library, "nvJitLinkCreate", ctypes.byref(handle), len(options), args)
    try:
        for name in files:
            data = Path(name).read_bytes()
            # Check the status: the link succeeds without an input that was rejected.
            kind = _TYPES[Path(name).suffix]
            label = Path(name).name.encode("utf-8", "surrogateescape")
            _call(
                library, "nvJitLinkAddData", handle, kind, data, ctypes.c_size_t(len(data)), label
            )
        _call(library, "nvJitLinkComplete", handle)
        size = ctypes.c_size_t()
        _call(library, "nvJitLinkGetLinkedCubinSize", handle, ctypes.byref(size))
        linked = ctypes.create_string_buffer(size.value)
        _call(library, "nvJitLinkGetLinkedCubin", handle, linked)
    except _FailedError as error:
        raise _FailedError(f"{_log(library, handle, 'Error')}\n{error}".strip()) from None
    if messages := _log(library, handle, "Info"):
        sys.stderr.write(f"{messages}\n")
    Path(output).write_bytes(linked.raw)


def main(arguments: list[str]) -> int:
    """Run the command line above; return 0, or 1 with the reason on standard error."""
    name, *args = arguments
    try:
        library = ctypes.CDLL(name)
        if args == ["--version"]:
            sys.stdout.write(f"{_version(library)}\n")
            return 0
        at = args.index("-o")
        output = args[at + 1]
        rest = args[:at] + args[at + 2 :]
        options = [arg for arg in rest if arg.startswith("-")]
        _link(library, options, [arg for arg in rest if not arg.startswith("-")], output)
    except (OSError, AttributeError, ValueError, KeyError, _FailedError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
