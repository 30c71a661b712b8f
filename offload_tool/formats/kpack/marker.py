"""The kpack marker: a host program's reference to device code in archives.

A wrapper (see `fatbin_section`) that begins with ``HIPK`` points to it. The loader follows the
pointer; tools look for the section ``.rocm_kpack_ref`` (COFF: ``.kpackrf``)::

    .hipFatBinSegment                 .rocm_kpack_ref   MessagePack, one map
      "HIPK", version,                  kpack_search_paths   array of strings
      pointer to the marker  ------->   kernel_name          string
      index                           (bytes after the map are ignored)

A path is relative to the folder of the program or library that contains the wrapper. The loader
replaces its first ``@GFXARCH@`` by each target ID that the device may load, in turn::

    gfx942:sramecc+:xnack-   gfx942:sramecc+   gfx942:xnack-   gfx942
    gfx9-4-generic:sramecc+:xnack-   ...   gfx9-4-generic

For each target ID, it looks up the key ``kernel_name#index`` in each archive. It silently skips
missing and broken archives. Windows allows no ``:`` in file names. Source: ROCm/rocm-kpack
(loader.cpp, isa_target_match.cpp), ROCm's clr, observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offload_tool.errors import ContentError, FormatError, UsageError
from offload_tool.formats.msgpack_stream import check_text, messagepack, reading

if TYPE_CHECKING:
    from offload_tool.io import StrPath

SECTION = ".rocm_kpack_ref"
PLACEHOLDER = "@GFXARCH@"
MAX_SIZE = 64 << 10
"""Bytes of a marker; the loader reads no more."""
_PATHS, _NAME = "kpack_search_paths", "kernel_name"


class KpackMarker(NamedTuple):
    """The archives to search, and the kernel name to look up."""

    kernel_name: str
    search_paths: tuple[str, ...]


def pack_marker(marker: KpackMarker) -> bytes:
    """Return a marker's bytes as AMD's splitter does; raise UsageError if one is too long."""
    if not marker.search_paths or not marker.kernel_name:
        raise UsageError("a kpack marker needs a kernel name and at least one search path")
    pack = messagepack().packb
    check_text(*marker.search_paths, marker.kernel_name)
    data: bytes = pack({_PATHS: list(marker.search_paths), _NAME: marker.kernel_name})
    if len(data) > MAX_SIZE:
        raise UsageError(f"a kpack marker has at most {MAX_SIZE} bytes, not {len(data)}")
    return data


def read_marker(
    data: memoryview, *, path: StrPath | None = None, offset: int = 0
) -> tuple[KpackMarker, int]:
    """Return the marker at `offset` and its size in bytes; raise FormatError or UsageError."""

    def refusal(message: str) -> ContentError:
        message = f"expected a kpack marker: {message}"
        return FormatError(message, path=path, offset=offset, field=SECTION)

    name = None
    paths: tuple[str, ...] = ()
    with reading(data[offset : offset + MAX_SIZE], refusal) as reader:
        for key in reader.map_keys("a map", "a key"):
            if key == _NAME:
                name = reader.string(f"a string for {_NAME}")
            elif key == _PATHS:
                count = reader.array_size(f"an array for {_PATHS}")
                paths = tuple(reader.string("a path") for _ in range(count))
            else:
                reader.skip()
        size = reader.position
    if name is None or not paths:
        raise refusal(f"there is no {_NAME if name is None else _PATHS}")
    return KpackMarker(name, paths), size
