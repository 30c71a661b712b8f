"""The compilers whose words are understood: clang, and ROCm's ``hipcc``, which hands on to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

_NAME = "hipcc"
_OURS = "offload-tool"
_SCRIPT = b"#!"


def find_hipcc(invoked: str, environ: Mapping[str, str]) -> str | None:
    """Return the first ``hipcc`` that is not `invoked`, nor another link to ``offload-tool``.

    It is looked for on PATH, then where ROCm is; None where there is none.
    """
    own = os.path.realpath(invoked)
    for folder in _folders(environ):
        path = f"{folder}/{_NAME}"
        real = os.path.realpath(path)
        if real == own or os.path.basename(real) == _OURS:
            continue
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def why_unknown(compiler: str, environ: Mapping[str, str]) -> str:
    """Return why nobody knows what a command does beside calling clang; "" for clang and hipcc."""
    if os.path.basename(compiler).startswith(_NAME):
        return ""
    folders = [""] if "/" in compiler else environ.get("PATH", os.defpath).split(os.pathsep)
    for folder in folders:
        path = os.path.join(folder, compiler)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return _why_unknown(path)
    return "there is no such program"


def _why_unknown(path: str) -> str:
    try:
        with open(path, "rb") as file:
            is_script = file.read(len(_SCRIPT)) == _SCRIPT
    except OSError as error:
        return str(error)
    if is_script:
        return f"'{path}' is a script, which may do more than to call a compiler"
    real = os.path.realpath(path)
    if "clang" not in os.path.basename(real):
        return f"'{real}' is no clang"
    return ""


def _folders(environ: Mapping[str, str]) -> Iterator[str]:
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        if folder:
            yield folder
    for name in ("HIP_PATH", "ROCM_PATH"):
        if environ.get(name):
            yield f"{environ[name]}/bin"
    yield "/opt/rocm/bin"
