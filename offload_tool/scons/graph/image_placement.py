"""Where a link puts device images: behind ``.bss``, if they are large.

::

    as linkers do    .hip_fatbin  .rodata  .text  .data  .bss      more than 2 GB: text cannot
                                                                   reach what lies before or behind
    large images     .rodata  .text  .data  .bss  .hip_fatbin      nothing reaches over the images

Host code reaches its data by offsets of 32 bits; a larger distance is a link error (``relocation
truncated to fit``). The pointer to the images has 64 bits. Below `LARGE`, nothing differs.

Source: GNU ld 2.40 and lld 22 link and run with the script; gold reads no INSERT.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import SCons.Errors

from offload_tool import passes
from offload_tool.clang.options import LINKER_SCRIPT, does
from offload_tool.scons import readers

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment

SCRIPT = str(Path(passes.__file__).with_name("runtime") / "images_behind_bss.ld")
LARGE = 1 << 30
"""Bytes of linked files from which the images are moved; host code may need the other GB."""
_WARN = 3 << 29
"""Bytes of linked files from which a warning names what makes them smaller."""
_LINKERS = ("bfd", "ld", "lld", "ld.bfd", "ld.lld")
"""Values of ``-fuse-ld=`` whose linker reads the script."""


def placement_flags(
    target: list[Any],
    source: list[Any],
    env: Environment,
    for_signature: bool,
) -> list[str]:
    """Return the flags with which a link of large files puts device images behind ``.bss``.

    A link with a script of the user's has the layout of that.

    :raises SCons.Errors.UserError: the flags choose a linker that cannot do it.
    """
    libraries = (node for node in target[0].implicit or () if node.get_suffix() == ".a")
    linked = {node for node in (*source, *libraries) if node.get_suffix() != ".so"}
    size = sum(node.get_size() for node in linked)
    if size < LARGE:
        return []
    given = env.Override({"_OFFLOAD_PLACEMENT": ""}).subst_list("$LINKFLAGS $SHLINKFLAGS")
    words = [str(word) for line in given for word in line]
    if any(does(part, LINKER_SCRIPT) for word in words for part in word.split(",")):
        return []
    chosen = [word.partition("=")[2] for word in words if word.startswith("-fuse-ld=")]
    linker = Path(chosen[-1]).name if chosen else "ld"
    if linker not in _LINKERS:
        raise SCons.Errors.UserError(
            f"{target[0]}: {size:,} bytes are linked, and -fuse-ld={linker} cannot put device "
            "images behind .bss, so that host code may not reach its data; link with "
            "-fuse-ld=lld or GNU ld, set OFFLOAD_COMPRESS, or set OFFLOAD_KPACK"
        )
    if size >= _WARN and not for_signature:
        readers.warn(
            env,
            f"{target[0]}: {size:,} bytes are linked; OFFLOAD_COMPRESS makes device images "
            "smaller, OFFLOAD_KPACK keeps them in files of their own",
        )
    return [f"-Wl,-T,{shlex.quote(SCRIPT)}"]
