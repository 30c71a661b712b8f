"""The generated part of the page of error messages."""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path

import offload_tool
from offload_tool import errors

_PACKAGE = Path(offload_tool.__file__).parent
_SHORTEST = 9
"""Letters of a text that is a message; shorter ones are a path or a number."""
_ID_WORDS, _ID_DIGITS = 5, 4
_EXPECTED = re.compile(r"\bexpected (.+?)(?:, found.*|$)")
_OF_ARGUMENTS = ("UsageError", "NoContainerError")
"""The classes whose "expected" is about what a user gives."""
_ADVICE = {
    "CodeObjectError": "compile again without `OFFLOAD_LAUNCHER` and without a cache.",
    "CompilerError": "`offload-tool doctor` says which compilers are there, and what each lacks.",
    "EntryIDError": "`offload-tool list` prints the bundle entry IDs of a file.",
    "FileError": "see that the file is there, that you may read or write it, and that the disk has "
    "room.",
    "FormatError": "build or download the file again. If another program reads it, report a fault "
    "here, with the file.",
    "LimitError": "raise the limit that the message names, if you trust the file "
    "([limits](untrusted.md#limits-of-a-run)).",
    "NoContainerError": "`offload-tool list --scan` looks for device code anywhere in a file.",
    "TargetIDError": "`offload-tool target ID` says what a target ID means.",
    "UnsupportedError": "nothing was written. Use the program that made the file.",
    "UsageError": "`--help`, [the commands](commands.md) and [the variables](scons.md#variables) "
    "say what is expected.",
}
"""What to do about each message of a class that says nothing of it."""


def messages() -> dict[str, set[str]]:
    """Return the messages of each class of errors.

    ``...`` stands for what is known when it is raised.
    """
    found: dict[str, set[str]] = {}
    for path in sorted(_PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                name = node.func.id
                if not isinstance(getattr(errors, name, None), type):
                    continue
                texts = [_text(argument) for argument in node.args]
                text = next((t for t in texts if sum(map(str.isalpha, t)) >= _SHORTEST), "")
                if text:
                    found.setdefault(name, set()).add(text)
    return found


def _text(node: ast.expr) -> str:
    """Return a text of the source, with ``...`` in the place of values."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = (_text(v) if isinstance(v, ast.Constant) else "..." for v in node.values)
        return "".join(parts)
    if isinstance(node, ast.List) and node.elts:
        return _text(node.elts[0])
    if isinstance(node, ast.GeneratorExp):
        return _text(node.elt)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return ""


def messages_page() -> str:
    """Describe every message: an ID, its class, its cause, and what to do.

    The ID is made of the message's words, so that it stays when other messages change.
    """
    lines = []
    for name, texts in sorted(messages().items()):
        meaning = (getattr(errors, name).__doc__ or "").partition("\n\n")[0]
        lines += [f"\n## {name}\n", escaped(" ".join(meaning.split()))]
        if name in _ADVICE:
            lines.append(f"\nWhere an entry says no more: {_ADVICE[name]}")
        lines.append("")
        for text in sorted(texts, key=lambda text: (text.strip("'. ").lower(), text)):
            cause, fix = _parts(text, name)
            place = _id(name, text)
            lines.append(f'- <a id="{place}" href="#{place}">#</a> {escaped(cause)}')
            lines += [f"  <br>{escaped(fix)}"] if fix else []
    return "\n".join(lines) + "\n"


def _parts(text: str, name: str) -> tuple[str, str]:
    """Return the cause and what to do about it, which may be empty."""
    cause, _, fix = text.partition("; ")
    wanted = _EXPECTED.search(cause)
    if not fix and wanted and name in _OF_ARGUMENTS and sum(map(str.isalnum, wanted[1])) > 2:
        fix = f"give {wanted[1].strip()}"
    return cause, fix[:1].upper() + fix[1:] + "." * bool(fix and fix[-1] not in ".?")


def _id(name: str, text: str) -> str:
    """Return the name of an entry's anchor, for readers and unique."""
    words = re.findall(r"[a-z0-9]+", text.lower())[:_ID_WORDS]
    digest = hashlib.sha256(text.encode()).hexdigest()
    return "-".join([name.removesuffix("Error").lower(), *words, digest[:_ID_DIGITS]])


def escaped(text: str) -> str:
    """Keep what stands for itself in a message from being Markdown."""
    plain = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|$" else c for c in plain)
