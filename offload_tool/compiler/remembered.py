"""The compiler and the words that begin each pass's command, remembered between runs.

``offload-tool compile`` is called once per output, and asking a compiler what it is takes
longer than many a compile. So the answers are kept on disk (see `caching`); they hold as
long as nothing changes in PATH's folders, in the compilers there, or in the modules of this
package that asked. SCons asks anew in each run: its signatures depend on the answers.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from offload_tool.compiler.caching import remembered

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from offload_tool.compiler.passes import CompilePass, Stage
    from offload_tool.compiler.toolchain import Toolchain

__all__ = ["PassCommand", "WantedPass", "pass_command", "remembered_toolchain"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
_MODULES = (
    *(f"compiler/{name}.py" for name in ("cuda", "device", "embedded", "hip", "openmp", "passes")),
    *("compiler/remembered.py", "compiler/toolchain.py"),
    *("formats/entry_id.py", "formats/processors.py", "formats/target_id.py", "formats/triple.py"),
)
_VARIABLES = ("OFFLOAD_CLANG", "ROCM_PATH", "PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR")
_HEADER_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX")
# Stand in the words for what differs from source to source; no argument can hold a NUL.
_CUID, _HOST_IR, _DEPFILE = "\0cuid", "\0host-ir", "\0depfile"


class WantedPass(NamedTuple):
    """A `passes.CompilePass` as it was asked for: nothing is read or checked yet."""

    kind: str
    stage: Stage
    cuid: str
    target: str | None = None
    rdc: bool = False

    def read(self) -> CompilePass:
        """Give the pass.

        :raises TargetIDError: the target is none, or none of this kind.
        :raises UsageError: there is no such pass.
        """
        from offload_tool.compiler.device import parse_devices
        from offload_tool.compiler.passes import KINDS, CompilePass
        from offload_tool.errors import UsageError

        device = None
        if self.target is not None and self.kind in KINDS:
            devices = parse_devices([self.target], self.kind)
            if len(devices) != 1:
                raise UsageError(f"'{self.target}': expected one target ID for one output")
            device = devices[0]
        return CompilePass(self.kind, self.stage, self.cuid, device, self.rdc)

    def check(self, output: str, host_ir: str | None) -> None:
        """Check what the pass has written, as `CompilePass.check` does.

        :raises CodeObjectError: it is something else; the message says what was found.
        """
        if self.kind != "hip" or self.rdc:
            self.read().check(output, host_ir)
            return
        # Most passes are these. To check them takes half as many modules as to read them.
        from offload_tool.compiler.check import check_code_object, check_host_object

        if self.target is None:
            check_host_object(output, self.cuid)
            return
        from offload_tool.formats.target_id import parse_target_ids

        (target_id,) = parse_target_ids([self.target])
        check_code_object(output, target_id, self.cuid)


class PassCommand(NamedTuple):
    """What is run for a pass."""

    words: list[str]
    """The compiler, flags that say where things are, and the flags of the pass."""
    dependencies: list[str]
    """The flags that write the depfile; none where only host IR is read."""
    environment: dict[str, str]
    """Variables that the compiler needs beside those of this process."""
    compiler: list[str]
    """Those words that name the compiler."""
    needs_host_ir: bool


def pass_command(
    wanted: WantedPass,
    source: str,
    *,
    environ: Mapping[str, str],
    host_ir: str | None = None,
    depfile: str | None = None,
) -> PassCommand:
    """Give the command of a pass over `source`, up to the user's flags.

    :raises CompilerError: no compiler is usable.
    :raises TargetIDError, UsageError: see `WantedPass.read`.
    """
    suffix = os.path.splitext(source)[1]  # noqa: PTH122
    question = ["pass", *_toolchain_question(environ)]
    question += (environ.get(name, "") for name in _HEADER_VARIABLES)
    question += (wanted.kind, wanted.stage, str(wanted.target), str(wanted.rdc), suffix)

    def find() -> dict[str, Any]:
        from offload_tool.compiler.passes import dependency_flags

        job = wanted._replace(cuid=_CUID).read()
        toolchain = remembered_toolchain(environ)
        dependencies = dependency_flags(_DEPFILE) if job.compiles_source else []
        own, flags = job.local_flags(toolchain, f"source{suffix}"), job.flags(toolchain, _HOST_IR)
        return {
            "words": [*toolchain.clang, *own, *flags],
            "dependencies": dependencies,
            "environment": dict(toolchain.environment),
            "compiler": list(toolchain.clang),
            "needs_host_ir": job.needs_host_ir,
            "toolchain": {"clang": toolchain.clang, "lld": toolchain.lld, "local_flags": own},
        }

    def witnesses(answer: Any) -> Iterator[str]:
        yield from _toolchain_witnesses(answer["toolchain"], environ)

    answer = remembered(question, find, witnesses)
    if not _is_command(answer):  # a file that was changed by hand
        answer = find()
    names = {_CUID: wanted.cuid, _HOST_IR: host_ir or "", _DEPFILE: depfile or ""}
    for part in ("words", "dependencies"):
        for mark, name in names.items():
            answer[part] = [word.replace(mark, name) for word in answer[part]]
    return PassCommand(*(answer[name] for name in PassCommand._fields))


def remembered_toolchain(environ: Mapping[str, str]) -> Toolchain:
    """Give what `toolchain.find_toolchain` finds for this OS environment.

    :raises CompilerError: no compiler is usable.
    """
    from dataclasses import asdict

    from offload_tool.compiler.toolchain import Toolchain, find_toolchain

    def find() -> dict[str, Any]:
        return asdict(find_toolchain(environ))

    def witnesses(answer: Any) -> Iterator[str]:
        yield from _toolchain_witnesses(answer, environ)

    answer = remembered(["toolchain", *_toolchain_question(environ)], find, witnesses)
    try:
        texts = {name: _text_or_texts(value) for name, value in answer.items()}
        made = Toolchain(**{**texts, "environment": tuple(map(tuple, answer["environment"]))})
    except (AttributeError, KeyError, TypeError):  # a file that was changed by hand
        return find_toolchain(environ)
    return made


def _toolchain_question(environ: Mapping[str, str]) -> list[str]:
    """Give everything that decides which compiler is found, but for what is on disk."""
    question = [_PACKAGE, sys.prefix, *(environ.get(name, "") for name in _VARIABLES)]
    relative = not all(map(os.path.isabs, _folders(environ)))
    if relative or "/" in environ.get("OFFLOAD_CLANG", ""):
        question.append(os.getcwd())  # noqa: PTH109
    return question


def _toolchain_witnesses(found: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[str]:
    from offload_tool.compiler.toolchain import is_clang_name

    yield from (f"{_PACKAGE}/{module}" for module in _MODULES)
    for folder in _folders(environ):
        yield folder
        if os.path.isdir(folder):  # noqa: PTH112
            yield from (item.path for item in os.scandir(folder) if is_clang_name(item.name))
    for root in (environ.get("ROCM_PATH", ""), "/opt/rocm"):
        yield f"{root}/llvm/bin/clang"
    words = environ.get("OFFLOAD_CLANG", "").split()
    for word in (*words, *found["clang"], *found["lld"]):
        yield from (os.path.join(folder, word) for folder in ("", *_folders(environ)))  # noqa: PTH118
    for before, flag in zip(("", *found["local_flags"]), found["local_flags"], strict=False):
        if flag.startswith("-B"):
            yield f"{flag[2:]}/lld"
        elif before == "-isystem":  # another version of the library may appear beside it
            yield from (flag, os.path.dirname(flag))  # noqa: PTH120


def _folders(environ: Mapping[str, str]) -> list[str]:
    return [folder for folder in environ.get("PATH", os.defpath).split(os.pathsep) if folder]


def _is_command(answer: Any) -> bool:
    def are_texts(value: Any) -> bool:
        return isinstance(value, list) and all(isinstance(word, str) for word in value)

    return (
        isinstance(answer, dict)
        and answer.keys() >= set(PassCommand._fields)
        and are_texts(answer["words"])
        and are_texts(answer["dependencies"])
        and are_texts(answer["compiler"])
        and bool(answer["words"] and answer["compiler"])
        and isinstance(answer["environment"], dict)
        and are_texts([*answer["environment"].values()])
    )


def _text_or_texts(value: Any) -> Any:
    if isinstance(value, str):
        return value
    texts = tuple(value)
    if not texts or all(isinstance(text, str) for text in texts):
        return texts
    return ()
