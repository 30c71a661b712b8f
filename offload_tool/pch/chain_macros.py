"""Whether a precompiled header (PCH) is what the headers before it on a chain leave of it.

A source that uses the PCH ``common.cuh`` reaches it through ``norm.cuh``. What stands before an
include there (see `include_prefix`) defines guards, and nothing else. The PCH was made without:
where its headers ask for such a macro, or include one of the headers before, they are others in
this source. So no macro that a chain defines may be among the words of the headers, nor be defined
before the source begins: by the compiler, a flag, or a file of ``-include``.

A macro may also be pasted of words (``a##b``): where two or three words of the headers make its
name, it counts as asked for.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from offload_tool.clang.depfile import read_depfile
from offload_tool.io.file_digests import Look, look_at
from offload_tool.io.paths import beside, remove
from offload_tool.passes.compile_pass import dependency_flags
from offload_tool.pch.file_names import Names, without_dots
from offload_tool.pch.include_prefix import Candidate, identity

if TYPE_CHECKING:
    from offload_tool.pch.pch import PchRecipe

    Run = Callable[[Sequence[str], Mapping[str, str]], tuple[int, bytes]]

_SPLICE = re.compile(rb"(?:\\|\?\?/)[ \t\f\v]*\r?\n")
_WORD_BYTES = b"_$0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OTHERS = bytes(byte for byte in range(256) if byte not in _WORD_BYTES)
_BLANKS = bytes.maketrans(_OTHERS, b" " * len(_OTHERS))
_UNKNOWN = "the compiler does not tell its macros"


class Before(NamedTuple):
    """What there is before the first line of a source, and in the headers of its PCH."""

    words: frozenset[str]
    """The words of the headers, and the macros that are defined before the source."""
    files: tuple[str, ...]
    """What flags, and the compiler itself, include before the source."""


def words_file(file: str) -> str:
    """Return the file with the words of the headers of the PCH `file`, made when it is needed."""
    return beside(file, ".words")


def reason_of_passed(
    recipe: PchRecipe, inputs: Sequence[str], of: Candidate, known: Before | None
) -> str:
    """Return why a PCH is none for a source that it is a candidate of; "" where it is one.

    `inputs` are the files that the PCH is made of. `known` is as of `before`.
    """
    names = Names.of(of.headers, recipe.folder)
    made_of = {identity(name): names.shown(name) for name in inputs}
    for each in of.passed:
        if inside := made_of.get(identity(each.name)):
            name = without_dots(each.name)
            return f"'{name}' is before the precompiled header, and in it as '{inside}'"
    if known is None:
        return _UNKNOWN
    for each in of.passed:
        for guard, line in each.guards:
            if asked := _asked_for(guard, known.words):
                place = f"{without_dots(each.name)}:{line}"
                where = _place_of(asked[0], inputs, names)
                how = "" if asked == (guard,) else f" as {' and '.join(asked)}"
                return f"'{place}' defines {guard}, which {where} has{how}"
    return ""


def before(recipe: PchRecipe, inputs: Sequence[str], run: Run) -> Before | None:
    """Return what there is before the sources of a PCH; None where the compiler does not tell.

    `run` runs a command; it gives its exit status, and all that it says.

    :raises FileError: what is found cannot be written.
    """
    file = words_file(recipe.file)
    if look_at(file) is None:
        from offload_tool.io import replace_file

        depfile = beside(recipe.file, ".before.d")
        command = [*recipe.words, "-w", "-E", "-dM", *dependency_flags(depfile), os.devnull]
        try:
            status, macros = run(command, recipe.environment)
            if status or not macros:
                return None
            files = [name for name in read_depfile(depfile) if name != os.devnull]
        finally:
            remove(depfile)
        found = {*_words_in(macros)}
        for name in inputs:
            found.update(_words_in(_content(name)))
        with replace_file(file) as out:
            out.write(json.dumps([files, b" ".join(sorted(found)).decode()]).encode())
    return _before_as_written(file, look_at(file))


@functools.lru_cache(maxsize=64)
def _before_as_written(file: str, look: Look | None) -> Before | None:  # noqa: ARG001
    try:
        files, words = json.loads(_content(file))
        return Before(frozenset(words.split()), tuple(files))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _words_in(text: bytes) -> list[bytes]:
    return _SPLICE.sub(b"", text).translate(_BLANKS).split()


def _content(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _asked_for(macro: str, words: frozenset[str]) -> tuple[str, ...]:
    """Return the words that are a macro, or make it when they are pasted."""
    if macro in words:
        return (macro,)
    begins = [at for at in range(1, len(macro)) if macro[:at] in words]
    ends = [at for at in range(1, len(macro)) if macro[at:] in words]
    for first in begins:
        for last in ends:
            if first == last:
                return macro[:first], macro[last:]
            if first < last and macro[first:last] in words:
                return macro[:first], macro[first:last], macro[last:]
    return ()


def _place_of(word: str, inputs: Iterable[str], names: Names) -> str:
    """Return where the headers have a word; the compiler's command where they do not."""
    pattern = re.compile(rb"(?<![\w$])" + re.escape(word.encode()) + rb"(?![\w$])")
    for name in inputs:
        text = _content(name)
        if found := pattern.search(text):
            line = text.count(b"\n", 0, found.start()) + 1
            return f"'{names.shown(name)}:{line}'"
    return "the compiler's command"
