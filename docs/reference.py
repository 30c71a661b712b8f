"""The parts of the reference that are made from the code: text for MyST, which Sphinx reads."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import offload_tool
from offload_tool.cli.parser import whole_parser
from offload_tool.scons import builders

_TOOLCHAIN = ("CLANG", "ROCM_PATH", "DEVICE_LIB_PATH", "CUDA_PATH")
GROUPS = {
    "compiles": (
        *("ARCH", "ARCH_FLAGS", "ALLOW_UNKNOWN_ARCH", "FLAGS", "HOST_FLAGS", "KIND", "RDC", "CUID"),
        *(*_TOOLCHAIN, "PTXAS", "PTXAS_FLAGS", "CUTOFF", "DIRECT", "DIST", "LAUNCHER"),
        *("PCH", "PCH_CHECK", "SUMMARY"),
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
    "OffloadStaticLibrary": _OBJECTS,
    "OffloadSharedLibrary": _LINKS,
    "OffloadProgram": _LINKS,
    "OffloadReport": ("REPORT_BEFORE", "REPORT_FLAGS"),
    "OffloadCompilationDatabase": ("CLANGD_ARCH",),
    "OffloadDeviceRuntime": ("the toolchain", "DEVICE_RUNTIME"),
    "OffloadHostRuntime": ("the toolchain",),
    "OffloadCudaToolkit": ("the toolchain", "ARCH", "ALLOW_UNKNOWN_ARCH"),
}
"""Of each builder, the groups and variables that it reads; a test records what is read."""


def api_page() -> str:
    """Describe every name of `offload_tool`, from its docstring."""
    groups: dict[str, list[str]] = {"Functions": [], "Types": [], "Errors": []}
    for name in offload_tool.__all__:
        groups[_group(getattr(offload_tool, name))].append(name)
    return "".join(_api_section(title, names) for title, names in groups.items() if names)


def _group(thing: object) -> str:
    if not inspect.isclass(thing):
        return "Functions"
    return "Errors" if issubclass(thing, Exception) else "Types"


def _api_section(title: str, names: list[str]) -> str:
    kind = {"Functions": "autofunction", "Types": "autoclass", "Errors": "autoexception"}[title]
    rows = [f"\n## {title}\n\n```{{eval-rst}}\n.. currentmodule:: offload_tool\n"]
    for name in names:
        rows.append(f".. {kind}:: {name}")
        rows += [] if title == "Functions" else ["   :members:", "   :show-inheritance:"]
        rows.append("")
    return "\n".join([*rows, "```\n"])


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
    return "\n".join(rows) + "\n"


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
    rows = [f"\n## {words}\n", f"```{{program}} {words}\n```\n"]
    rows += [
        _escaped(parser.description or ""),
        "",
        "```text",
        parser.format_usage().rstrip(),
        "```",
        "",
    ]
    rows += [_action(action) for action in parser._actions]
    rows.append(_escaped(parser.epilog or "") + "\n")
    return "\n".join(rows)


def _action(action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):
        return ""
    text = (action.help or "") % {**vars(action), "prog": ""}
    if action.metavar is None and action.choices is not None:
        text = f"{text}{': ' if text else ''}{', '.join(map(str, action.choices))}"
    value = str(action.metavar or action.dest.upper()) if action.nargs != 0 else ""
    if action.metavar is None and action.choices is not None:
        value = action.dest.upper()
    # Of -type and --type, one: their anchors would be the same.
    names = [n for n in action.option_strings if f"-{n}" not in action.option_strings] or [""]
    signature = ", ".join(" ".join(filter(None, (name, value))) for name in names)
    return f"````{{option}} {signature}\n{_escaped(text)}\n````\n"


def _escaped(text: str) -> str:
    """Keep what stands for itself in a help text from being Markdown."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#|$" else c for c in text)
