"""A precompiled header behind a compiler cache: a script that adds it to compiles alone.

ccache and sccache preprocess a source before they look it up, which fails, or finds other text,
where the command names a PCH. So they are given the plain command of a compiler that is a script:
it adds the PCH, which the environment names, to what compiles, and nothing to what preprocesses.
Its text, by which they tell one compiler from another, holds the compiler's identity.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from offload_tool.toolchain.disk_cache import cache_folder

if TYPE_CHECKING:
    from offload_tool.pch.pch import UsablePch

_WORDS = "OFFLOAD_PCH_WORDS"
_SCRIPT = """\
#!/bin/sh
# {identity}
case " $* " in
*" -E "* | *" -### "*) ;;
*" -c "* | *" -S "*)
    eval "set -- ${words} \\"\\$@\\"" ;;
esac
exec {compiler} "$@"
"""
_EXECUTABLE = 0o700


def launched_with_pch(
    command: Sequence[str], usable: UsablePch
) -> tuple[list[str], Mapping[str, str]]:
    """Return the command of a pass with a PCH for a launcher, and the environment for it.

    :raises CompilerError: no folder for the script can be written.
    :raises FileError: the script cannot be written.
    """
    recipe = usable.recipe
    compiler = command[: recipe.program]
    variables = {
        "CCACHE_COMPILERCHECK": "content",
        **recipe.environment,
        _WORDS: shlex.join(usable.words()),
    }
    script = _script(compiler, recipe.compiler)
    return [script, *command[recipe.program :]], variables


def _script(compiler: Sequence[str], identity: str) -> str:
    from offload_tool.io import replace_file

    text = _SCRIPT.format(
        identity=" ".join(identity.split()),
        words=_WORDS,
        compiler=shlex.join(compiler),
    ).encode(errors="surrogateescape")
    folder = Path(cache_folder()) / "pch" / hashlib.sha256(text).hexdigest()[:16]
    name = os.path.basename(compiler[0])
    file = folder / (name if "clang" in name else "clang")
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replace_file(file) as out:
            out.set_mode(_EXECUTABLE)
            out.write(text)
    return str(file)
