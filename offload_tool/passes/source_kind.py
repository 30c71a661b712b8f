"""What a source's name tells: its offload kind, its language, and a compilation unit ID."""

from __future__ import annotations

import os

KINDS = ("hip", "openmp", "cuda")
C_SUFFIXES = (".c",)
CXX_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++", ".C", ".CPP")
KIND_OF_SUFFIX = {".hip": "hip", ".cu": "cuda"}


def kind_of_suffix(name: str) -> str | None:
    """Return the offload kind that a source's suffix tells, if it does."""
    return KIND_OF_SUFFIX.get(os.path.splitext(name)[1])


def language_of(name: str) -> str:
    """Return what a compiler is to take a source for that is of no offload language."""
    suffix = os.path.splitext(name)[1]
    if suffix in C_SUFFIXES:
        return "c"
    return "c++" if suffix in CXX_SUFFIXES else ""


def language_flags(name: str) -> list[str]:
    """Return the flags that say so: ``clang++`` takes C sources for C++ unless it is told."""
    language = language_of(name)
    return ["-x", language] if language else []


def derive_cuid(source: str, output_stem: str = "") -> str:
    """Derive a compilation unit ID from a source's name relative to the project's top.

    `output_stem` sets apart several objects of one source. Absolute paths and flags stay
    out, so that two checkouts agree and a changed flag does not reach other passes.
    """
    import hashlib  # most commands that compile name the ID

    text = source if not output_stem else f"{source}\0{output_stem}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
