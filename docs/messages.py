"""The page of error messages, made from the code: text for MyST, which Sphinx reads."""

from __future__ import annotations

import ast
from pathlib import Path

import offload_tool
from offload_tool import errors

__all__ = ["messages", "messages_page"]

_PACKAGE = Path(offload_tool.__file__).parent
_SHORTEST = 6
"""Characters of a text that are a message; shorter ones are a path or a number."""


def messages() -> dict[str, dict[str, set[str]]]:
    """Return the messages of each class of errors, and the modules that raise them.

    ``...`` stands for what is known when it is raised.
    """
    found: dict[str, dict[str, set[str]]] = {}
    for path in sorted(_PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(_PACKAGE).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                name = node.func.id
                if not isinstance(getattr(errors, name, None), type):
                    continue
                texts = [_text(argument) for argument in node.args]
                text = next((t for t in texts if len(t.replace(".", "")) > _SHORTEST), "")
                if text:
                    found.setdefault(name, {}).setdefault(text, set()).add(module)
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
    """Describe every message: its class, its cause, what to do, and where it comes from."""
    rows = []
    for name, texts in sorted(messages().items()):
        meaning = (getattr(errors, name).__doc__ or "").partition("\n\n")[0]
        rows += [f"\n## {name}\n", _escaped(" ".join(meaning.split())), ""]
        rows += ["| message | what to do | raised by |", "|---|---|---|"]
        for text, modules in sorted(texts.items(), key=lambda item: item[0].strip("'. ").lower()):
            cause, _, fix = text.partition("; ")
            places = ", ".join(f"`{module}`" for module in sorted(modules))
            rows.append(f"| {_escaped(cause)} | {_escaped(fix)} | {places} |")
    return "\n".join(rows) + "\n"


def _escaped(text: str) -> str:
    """Keep what stands for itself in a message from being Markdown."""
    plain = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|$" else c for c in plain)
