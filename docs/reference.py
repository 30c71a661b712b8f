"""Write the generated parts of docs/: run ``python docs/reference.py`` after changes of the code.

A page's text above the marker is written by hand, and what is below it comes from the code.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

from messages import escaped, messages_page

import offload_tool
from offload_tool.cli.parser import whole_parser
from offload_tool.scons import builders
from offload_tool.scons.variables import COMMAND_LINES

MARKER = "<!-- From here on, the code is the source: change it, and run docs/reference.py. -->"
_WIDTH = 100
_TOOLCHAIN = ("CLANG", "ROCM_PATH", "DEVICE_LIB_PATH", "CUDA_PATH")
GROUPS = {
    "compiles": (
        *("ARCH", "ARCH_FLAGS", "ALLOW_UNKNOWN_ARCH", "FLAGS", "HOST_FLAGS", "KIND", "RDC", "CUID"),
        *(*_TOOLCHAIN, "PTXAS", "PTXAS_FLAGS", "CUTOFF", "CUTOFF_CHECK", "DIRECT", "DIST"),
        *("LAUNCHER", "PCH", "PCH_CHECK", "SUMMARY"),
    ),
    "bundles": ("BUNDLE_ALIGN", "COMPRESS", "COMPRESS_LEVEL", "COMPRESS_VERSION"),
    "archives apart": ("KPACK", "KPACK_COMPRESS", "KPACK_INTERFACE", "KPACK_PATHS"),
    "links": ("LIBS", "LINK_FLAGS", "DEVICE_RUNTIME", "NVLINK"),
    "entries": ("ARCH", "ARCH_FLAGS", "ALLOW_UNKNOWN_ARCH", "KIND", "TARGETS"),
    "unbundling": ("ALLOW_MISSING_BUNDLES", "HIP_OPENMP_COMPATIBLE"),
    "the toolchain": _TOOLCHAIN,
}
"""Construction variables that several builders read together."""
_OBJECTS = ("compiles", "bundles", "archives apart", "ARCHIVE_FORMAT")
_LINKS = ("compiles", "bundles", "archives apart", "links")
READS: dict[str, tuple[str, ...]] = {
    "OffloadDeviceObject": ("compiles",),
    "OffloadHostObject": ("compiles",),
    "OffloadBundle": ("compiles", "bundles", "TARGETS", "BUNDLE_HOST", "BUNDLE_TYPE"),
    "OffloadUnbundle": ("entries", "unbundling", "BUNDLE_TYPE"),
    "OffloadArchive": ("compiles", "archives apart", "ARCHIVE_FORMAT"),
    "OffloadDeviceArchive": ("entries", "unbundling", "CHECK_INPUT_ARCHIVE"),
    "OffloadPackage": ("compiles", "TARGETS", "PACKAGE_BASE", "PACKAGE_KEYS"),
    "OffloadExtract": ("entries", "EXTRACT_ARCHIVE"),
    "OffloadRepack": ("bundles",),
    "OffloadWrapper": ("the toolchain", "entries", "WRAPPER_LLVM"),
    "OffloadObject": _OBJECTS,
    "OffloadStaticLibrary": (*_OBJECTS, "links", "DEVICE_LINK"),
    "OffloadSharedLibrary": _LINKS,
    "OffloadProgram": _LINKS,
    "OffloadReport": ("REPORT_BEFORE", "REPORT_FLAGS"),
    "OffloadCompilationDatabase": ("CLANGD_ARCH",),
    "OffloadDeviceRuntime": ("the toolchain", "DEVICE_RUNTIME"),
    "OffloadHostRuntime": ("the toolchain", "ARCH", "ALLOW_UNKNOWN_ARCH"),
    "OffloadCudaToolkit": ("the toolchain", "ARCH", "ALLOW_UNKNOWN_ARCH"),
    "OffloadCudaFlags": ("the toolchain", "ARCH", "ALLOW_UNKNOWN_ARCH"),
    "OffloadRocmFlags": ("the toolchain", "ARCH", "ALLOW_UNKNOWN_ARCH"),
}
"""Of each builder, the groups and variables that it reads; a test records what is read."""


def pages() -> dict[Path, str]:
    """Return the text that each page with a generated part should have."""
    makers = {
        "api": api_page,
        "builders": builders_page,
        "commands": commands_page,
        "messages": messages_page,
    }
    found = {}
    for name, make in makers.items():
        path = Path(__file__).with_name(f"{name}.md")
        by_hand = path.read_text(encoding="utf-8").partition(MARKER)[0].rstrip()
        found[path] = f"{by_hand}\n\n{MARKER}\n{make()}"
    return found


def api_page() -> str:
    """Describe every name of `offload_tool`, from its source."""
    groups: dict[str, list[str]] = {"Functions": [], "Types": [], "Errors": []}
    for name in offload_tool.__all__:
        groups[_group(getattr(offload_tool, name))].append(name)
    parts = []
    for title, names in groups.items():
        parts.append(f"\n## {title}\n")
        for name in names:
            source = textwrap.dedent(inspect.getsource(getattr(offload_tool, name)))
            parts += [f"\n### {name}\n", *_described(ast.parse(source).body[0], name)]
    return "".join(parts)


def _group(thing: object) -> str:
    if not inspect.isclass(thing):
        return "Functions"
    return "Errors" if issubclass(thing, Exception) else "Types"


def _described(node: ast.stmt, name: str) -> Iterator[str]:
    """Yield the paragraphs about a function, or about a class and its public members."""
    if isinstance(node, ast.FunctionDef):
        yield _code(_signature(node)) + _markdown(node)
        return
    node = cast("ast.ClassDef", node)
    fields = {
        f.target.id: f
        for f in node.body
        if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name) and f.target.id[0] != "_"
    }
    bases = [text for base in node.bases if (text := ast.unparse(base))[0] != "_"]
    first = f"class {name}({', '.join(bases)})" if bases else f"class {name}"
    shown = [f"{first}:" if fields else first, *map(_text, fields.values())]
    yield _code("\n    ".join(shown))
    yield _markdown(node)
    for field, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            named = [one for one, here in fields.items() if here is field]
            yield from (f"\n`{one}`: {_linked(str(after.value.value))}\n" for one in named)
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name[0] != "_":
            kinds = [ast.unparse(one) for one in method.decorator_list]
            is_property = any("property" in kind for kind in kinds)
            call = method.name if is_property else _signature(method, drop_first=True)
            yield _code(f"{name}.{call}") + _markdown(method)


def _code(text: str) -> str:
    return f"\n```python\n{text}\n```\n"


def _signature(function: ast.FunctionDef, *, drop_first: bool = False) -> str:
    """Return a signature, one argument in a line if it is long."""
    given = function.args
    names = [*given.posonlyargs, *given.args]
    unset: list[ast.expr | None] = [None] * (len(names) - len(given.defaults))
    shown = [*map(_argument, names, [*unset, *given.defaults])][drop_first:]
    shown += [f"*{ast.unparse(given.vararg)}"] if given.vararg else ["*"] * bool(given.kwonlyargs)
    shown += map(_argument, given.kwonlyargs, given.kw_defaults)
    returned = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    line = f"{function.name}({', '.join(shown)}){returned}"
    if len(line) <= _WIDTH:
        return line
    rows = "".join(f"    {one},\n" for one in shown)
    return f"{function.name}(\n{rows}){returned}"


def _argument(name: ast.arg, default: ast.expr | None) -> str:
    return _text(name) + (f" = {_text(default)}" if default is not None else "")


def _text(node: ast.AST) -> str:
    """Return code with the quotes that the source has."""
    return ast.unparse(node).replace("'", '"')


def _markdown(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Return a docstring as Markdown: its errors are a list, and our names are links."""
    text = _linked(ast.get_docstring(node) or "")
    return "\n" + re.sub(r"^:raises ([^:]+):", r"- Raises `\1`:", text, flags=re.M) + "\n"


def _linked(text: str) -> str:
    plain = text.replace("``", "`")
    return re.sub(
        r"(?<!`)`(\w+)`(?!`)",
        lambda found: (
            f"[{found[0]}](#{found[1].lower()})" if found[1] in offload_tool.__all__ else found[0]
        ),
        plain,
    )


def signatures() -> dict[str, tuple[str, str]]:
    """Return signature and docstring of each method that the tool adds to an environment."""
    found = {}

    class Environment:
        def AddMethod(self, method: Callable[..., object], name: str) -> None:  # noqa: N802
            signature = inspect.signature(method)
            shown = [
                str(one.replace(annotation=one.empty, default=one.empty))
                + ("=None" if one.default is None else "")
                for one in [*signature.parameters.values()][1:]
            ]
            found[name] = f"env.{name}({', '.join(shown)})", inspect.getdoc(method) or ""

    builders.add_builders(cast("Any", Environment()))
    return found


def builders_page() -> str:
    """Describe every builder: arguments, nodes returned, construction variables read."""
    rows = ["\nWhat several builders read:\n", "| variables of | are |", "|---|---|"]
    rows += [f"| {group} | {_variables(names)} |" for group, names in GROUPS.items()]
    for name, (signature, text) in sorted(signatures().items()):
        rows += [f"\n## {name}\n", f"```python\n{signature}\n```\n", text.replace("``", "`")]
        groups = [one for one in READS.get(name, ()) if one in GROUPS]
        own = _variables(one for one in READS.get(name, ()) if one not in GROUPS)
        shared = f"the variables of {', '.join(groups)}" if groups else ""
        if reads := "; ".join(filter(None, (shared, own))):
            rows.append(f"\nReads {reads}.")
    rows += ["\n## Messages of a build\n", "| variable | a build shows |", "|---|---|"]
    rows += [f"| `{name}` | `{text}` |" for name, text in shown_messages().items()]
    return "\n".join(rows) + "\n"


def shown_messages() -> dict[str, str]:
    """Return the variables that replace messages, with the message that each has by default."""
    words = {"_OFFLOAD_LANGUAGE": "HIP", "_OFFLOAD_TARGET_ID": "gfx942", "_OFFLOAD_SHOWN": "SOURCE"}
    return {
        name: re.sub(r"\$(\w+)", lambda found: words.get(found[1], found[1]), text)
        for name, text in sorted(COMMAND_LINES.items())
        if name.endswith("COMSTR")
    }


def _variables(names: Iterable[str]) -> str:
    return ", ".join(f"`OFFLOAD_{name}`" for name in names)


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield all commands, with their words: ``offload-tool dist init``."""
    yield from _commands(whole_parser())


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield parser.prog, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _commands(inner)


def commands_page() -> str:
    """Describe every command with its arguments and options, from their parsers."""
    return "".join(_command(words, parser) for words, parser in commands())


def _command(words: str, parser: argparse.ArgumentParser) -> str:
    actions = [a for a in parser._actions if not isinstance(a, argparse._SubParsersAction)]
    usage = parser.usage and parser.usage % {"prog": words}
    rows = [f"\n## {words}\n", escaped(parser.description or "")]
    rows += ["\n```text", usage or " ".join([words, *_usage(parser)]), "```\n"]
    rows += map(_action, actions)
    return "\n".join([*rows, *([f"\n{escaped(parser.epilog)}"] if parser.epilog else [])]) + "\n"


def _usage(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the parts of a command line, without the options that are not required."""
    yield "[OPTIONS]"
    for action in parser._actions:
        if action.option_strings and action.required:
            yield f"{action.option_strings[0]} {action.metavar}"
    for action in parser._actions:
        if not action.option_strings:
            name = str(action.metavar or action.dest.upper())
            several = {"?": f"[{name}]", "*": f"[{name} ...]", "+": f"{name} [{name} ...]"}
            yield several.get(str(action.nargs), name)


def _action(action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": ""}
    value = str(action.metavar or action.dest.upper()) if action.nargs != 0 else ""
    if action.metavar is None and action.choices is not None:
        text = f"{text}{': ' if text else ''}{', '.join(map(str, action.choices))}"
    # Of -type and --type, one.
    names = [n for n in action.option_strings if f"-{n}" not in action.option_strings] or [""]
    shown = ", ".join(f"`{' '.join(filter(None, (name, value)))}`" for name in names)
    return f"- {shown}: {escaped(text)}"


if __name__ == "__main__":
    for page, wanted in pages().items():
        page.write_text(wanted, encoding="utf-8")
