"""Derive from a source's name its offload kind, its language, and a compilation unit ID."""

from __future__ import annotations

import os

KINDS = ("hip", "openmp", "cuda")
C_SUFFIXES = (".c",)
CXX_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++", ".C", ".CPP")
KIND_OF_SUFFIX = {".hip": "hip", ".cu": "cuda"}

CXX_MODE = "--driver-mode=g++"
"""Makes clang's driver act as ``clang++``, whatever the name of the program: for C++ and the
languages that extend it. It then reads the configuration files of C++ (``clang++.cfg``)."""


def kind_of_suffix(name: str) -> str | None:
    """Return the offload kind of a source's suffix, if it has one."""
    return KIND_OF_SUFFIX.get(os.path.splitext(name)[1])


def language_of(name: str) -> str:
    """Return the language of a source without an offload language: ``c``, ``c++`` or ""."""
    suffix = os.path.splitext(name)[1]
    if suffix in C_SUFFIXES:
        return "c"
    return "c++" if suffix in CXX_SUFFIXES else ""


def language_flags(name: str) -> list[str]:
    """Return the flags for that language: ``clang++`` would compile C sources as C++."""
    language = language_of(name)
    return [*mode_flags(name), *(["-x", language] if language else [])]


def mode_flags(name: str) -> list[str]:
    """Return the flags with which the driver compiles a source of this name, C or not."""
    return [] if language_of(name) == "c" else [CXX_MODE]


def derive_cuid(source: str, output_stem: str = "") -> str:
    """Derive a compilation unit ID from a source's name, relative to the project's top.

    `output_stem` distinguishes several objects of one source. Absolute paths and flags stay out, so
    that two checkouts agree and a changed flag does not affect other passes.
    """
    import hashlib  # most compile commands name the ID

    text = source if not output_stem else f"{source}\0{output_stem}"
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
