"""NVIDIA's library ``nvfatbin``, which writes fat binaries as ``fatbinary`` of its version."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class RefusedError(Exception):
    """The library's message."""


class Image(NamedTuple):
    """What is to be in the fat binary; `options` are for PTX."""

    kind: str
    processor: str
    content: bytes
    identifier: str = ""
    options: str = ""


class NvFatbin:
    """The library at a path."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.library.nvFatbinGetErrorString.restype = ctypes.c_char_p

    def _call(self, name: str, *arguments: object) -> None:
        status = self.library[name](*arguments)
        if status:
            raise RefusedError(self.library.nvFatbinGetErrorString(status).decode())

    def write(self, options: Sequence[str], images: Sequence[Image]) -> bytes:
        """Return the fat binary of `images`.

        :raises RefusedError: by the library.
        """
        handle = ctypes.c_void_p()
        texts = (ctypes.c_char_p * len(options))(*(text.encode() for text in options))
        self._call("nvFatbinCreate", ctypes.byref(handle), texts, ctypes.c_size_t(len(options)))
        try:
            for image in images:
                self._add(handle, image)
            size = ctypes.c_size_t()
            self._call("nvFatbinSize", handle, ctypes.byref(size))
            room = ctypes.create_string_buffer(size.value)
            self._call("nvFatbinGet", handle, room)
            return room.raw
        finally:
            self.library.nvFatbinDestroy(ctypes.byref(handle))

    def _add(self, handle: ctypes.c_void_p, image: Image) -> None:
        number = image.processor.partition("_")[2].encode()
        name = image.identifier.encode() or None
        content = image.content + b"\0" if image.kind == "ptx" else image.content
        common = (handle, content, ctypes.c_size_t(len(content)), number, name)
        if image.kind == "elf":
            self._call("nvFatbinAddCubin", *common)
        else:
            added = {"ptx": "nvFatbinAddPTX", "nvvm": "nvFatbinAddLTOIR"}[image.kind]
            self._call(added, *common, image.options.encode())
