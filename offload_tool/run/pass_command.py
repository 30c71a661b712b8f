"""The compiler and the first arguments of each pass's command, cached between runs.

``offload-tool compile`` runs once per output, and querying a compiler takes longer than many a
compile. Therefore the results are kept on disk (see `disk_cache`). They are valid while PATH's
folders, the compilers there, and this package's modules that compute them are unchanged. SCons
queries anew in each run, since its signatures depend on the results.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from offload_tool.clang.driver import output_of
from offload_tool.clang.environment import INSTALLATIONS, folder_key
from offload_tool.clang.options import relevant_flags, trial_flags
from offload_tool.errors import CompilerError, UsageError
from offload_tool.io.paths import names_in
from offload_tool.toolchain.disk_cache import PACKAGE
from offload_tool.toolchain.driver_cache import cached_compiler_result, compiler_files
from offload_tool.toolchain.identity import LIBRARY_PATH, is_script, program_dependencies
from offload_tool.util.which import program_folders, which

if TYPE_CHECKING:
    from offload_tool.passes.capability_check import Job
    from offload_tool.passes.compile_pass import CompilePass, Stage
    from offload_tool.toolchain.probe import Toolchain

_VARIABLES = ("OFFLOAD_CLANG", "XDG_CACHE_HOME", "TMPDIR", *INSTALLATIONS)
# Placeholders for the parts that differ between sources; no argument can hold a NUL.
_CUID, _HOST_IR = "\0cuid", "\0host-ir"


class WantedPass(NamedTuple):
    """A `passes.CompilePass` over a source as requested, neither parsed nor checked."""

    kind: str
    stage: Stage
    cuid: str
    source: str
    environ: Mapping[str, str]
    """The environment, which selects the compiler."""
    flags: Sequence[str] = ()
    target: str | None = None
    rdc: bool = False
    host_ir: str | None = None
    """The host IR, which all further passes of an OpenMP source read."""

    def parse(self, compiler: Callable[[], Toolchain]) -> CompilePass:
        """Return the parsed pass, for a target that the `compiler` supports; raise UsageError."""
        from offload_tool.passes.languages import compile_pass
        from offload_tool.passes.source_kind import KINDS
        from offload_tool.toolchain.supported_processors import targets_of_compiler

        device = None
        if self.target is not None and self.kind in KINDS:
            devices = targets_of_compiler([self.target], self.kind, compiler)
            if len(devices) != 1:
                raise UsageError(f"'{self.target}': expected one target ID for one output")
            device = devices[0]
        names = {"source": self.source, "host_ir": self.host_ir or ""}
        return compile_pass(self.kind, self.stage, self.cuid, device, rdc=self.rdc, **names)

    def check(self, output: str) -> None:
        """Check the output; raise CodeObjectError. This imports half as much as `parse` does."""
        from offload_tool.formats.targets.compile_target import parse_targets
        from offload_tool.passes.verify_output import check_output

        targets = [self.target] if self.target is not None else []
        (device,) = parse_targets(targets, self.kind, allow_unknown=True) or (None,)
        own = (self.kind, self.stage, output, self.cuid, device)
        check_output(*own, rdc=self.rdc, host_ir=self.host_ir)


class PassCommand(NamedTuple):
    """The parts of a pass's command."""

    args: list[str]
    """The compiler, flags with locations, and the flags of the pass."""
    last: list[str]
    """Flags of the pass that follow the user's."""
    writes_depfile: bool
    """False if the pass reads only host IR."""
    environment: dict[str, str]
    """Variables that the compiler needs in addition to those of this process."""
    compiler: list[str]
    needs_host_ir: bool
    can_bypass_driver: bool
    installed: list[str]
    """Files that the compiler uses and the depfile does not name."""
    identity: str
    """Identifies the compiler in cache keys."""
    is_script: bool
    toolchain: dict[str, Any]
    """The fields of its `Toolchain`, with the pass's local flags."""


def pass_command(wanted: WantedPass) -> PassCommand:
    """Return the command up to the user's flags; raise CompilerError, and errors of `parse`."""
    environ, flags = wanted.environ, wanted.flags
    suffix = os.path.splitext(wanted.source)[1]
    key = ["pass", *_toolchain_key(environ)]
    key += (wanted.kind, wanted.stage, str(wanted.target), str(wanted.rdc), suffix)
    deciding = relevant_flags(flags)
    key += [*deciding, *folder_key(deciding)]

    # A user's flags may compensate for a defect of the compiler; then all flags are part of the
    # key.
    key_with_flags = [*key, "with", *flags, *folder_key(flags)]

    def find(user_flags: Sequence[str] = (), *, lenient: bool = False) -> dict[str, Any]:
        from offload_tool.passes.capability_check import Job
        from offload_tool.util.frozen import as_dict

        like = f"source{suffix}"
        marked = wanted._replace(cuid=_CUID, source=like, host_ir=_HOST_IR)
        job = marked.parse(lambda: cached_toolchain(environ))
        device = job.device
        targets = (device.name,) if device is not None and device.target_id is not None else ()
        needed = Job(job.kind, targets, deciding, trial_flags(user_flags), like)
        toolchain = cached_toolchain(environ, needed, lenient=lenient)
        programs = (which(arg, environ.get("PATH")) for arg in toolchain.clang)
        local_flags = job.local_flags(toolchain)
        return {
            "args": [*toolchain.clang, *local_flags, *job.flags(toolchain)],
            # Host objects that list their entries need no embedded fat binary for each source.
            "last": job.end_flags(toolchain, "offload-binary" if job.kind == "cuda" else ""),
            "writes_depfile": job.compiles_source,
            "environment": dict(toolchain.environment),
            "compiler": list(toolchain.clang),
            "needs_host_ir": job.needs_host_ir,
            "can_bypass_driver": job.can_bypass_driver and toolchain.is_driver_alone,
            "installed": list(toolchain.installed) if device is not None else [],
            "identity": toolchain.identity,
            "is_script": any(is_script(program) for program in programs if program),
            "toolchain": {**as_dict(toolchain), "local_flags": local_flags},
        }

    def find_unless_known() -> dict[str, Any]:
        with suppress(LookupError):
            _cached(key_with_flags, environ, _raise_not_cached)
            raise CompilerError("the flags provide what this compiler lacks")
        return find()

    try:
        result = _cached(key, environ, find_unless_known)
    except CompilerError:
        result = _cached(key_with_flags, environ, lambda: find(flags, lenient=True))
    for doubt in result["toolchain"]["doubts"]:
        sys.stderr.write(f"offload-tool compile: warning: {doubt}; compiled all the same\n")
    for mark, name in ((_CUID, wanted.cuid), (_HOST_IR, wanted.host_ir or "")):
        result["args"] = [arg.replace(mark, name) for arg in result["args"]]
    return PassCommand(*(result[name] for name in PassCommand._fields))


def _raise_not_cached() -> Any:
    raise LookupError


def compiler_version(parts: PassCommand) -> str:
    """Return ``--version`` of a compiler that is a script, which may run any; else ""."""
    if not parts.is_script:
        return ""
    try:
        return output_of(parts.compiler, "--version")
    except CompilerError as error:
        return str(error)


def cached_toolchain(
    environ: Mapping[str, str], job: Job | None = None, *, lenient: bool = False
) -> Toolchain:
    """Return the cached result of `find_toolchain` for this environment and job."""
    from offload_tool.passes.choose_compiler import find_toolchain
    from offload_tool.toolchain.probe import Toolchain
    from offload_tool.util.frozen import as_dict

    def find() -> dict[str, Any]:
        jobs = (job,) if job is not None else ()
        return {"toolchain": as_dict(find_toolchain(environ, jobs=jobs, lenient=lenient))}

    key = ["toolchain", *_toolchain_key(environ)]
    if job is not None:
        key += [job.kind, job.source, *job.targets, "", *job.flags, *folder_key(job.flags)]
        key += ["with", *job.all_flags, *folder_key(job.all_flags)] if job.all_flags else []
    result = _cached(key, environ, find)["toolchain"]
    result = {name: v if isinstance(v, str) else tuple(v) for name, v in result.items()}
    result["environment"] = tuple(map(tuple, result["environment"]))
    return Toolchain(**result)


def _toolchain_key(environ: Mapping[str, str]) -> list[str]:
    key = [PACKAGE, sys.prefix, *(environ.get(name, "") for name in _VARIABLES)]
    named = (environ.get(name, "") for name in INSTALLATIONS)
    relative = not all(map(os.path.isabs, [*program_folders(environ), *filter(None, named)]))
    if relative or "/" in environ.get("OFFLOAD_CLANG", ""):
        key.append(os.getcwd())
    return key


def _cached(key: Sequence[str], environ: Mapping[str, str], find: Callable[[], Any]) -> Any:
    """Return a cached result with the fields of a toolchain; one with doubts is not stored."""

    def dependencies(result: Any) -> list[str] | None:
        toolchain = result["toolchain"]
        command = [*toolchain["clang"], *toolchain["local_flags"]]
        paths = (*_dependency_paths(toolchain, environ), *compiler_files(command, environ))
        return None if toolchain["doubts"] else [*paths]

    return cached_compiler_result(key, (), environ, find, dependencies)


def _dependency_paths(toolchain: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[str]:
    from offload_tool.toolchain.installations import installation_folders
    from offload_tool.toolchain.probe import CLANG_NAME

    yield from installation_folders(environ)
    for folder in program_folders(environ):
        yield folder
        yield from (f"{folder}/{name}" for name in filter(CLANG_NAME.fullmatch, names_in(folder)))
    for root in (environ.get("ROCM_PATH", ""), "/opt/rocm"):
        yield f"{root}/llvm/bin/clang"
    args = environ.get("OFFLOAD_CLANG", "").split()
    for arg in (*args, *toolchain["clang"], *toolchain["lld"]):
        yield from (os.path.join(folder, arg) for folder in ("", *program_folders(environ)))
    for program in toolchain["programs"]:
        yield from program_dependencies(program, environ.get(LIBRARY_PATH, ""))
    for file in toolchain["configuration"]:
        yield from (file, os.path.dirname(file))
    local_flags = toolchain["local_flags"]
    for before, flag in zip(("", *local_flags), local_flags, strict=False):
        if flag.startswith("-B"):
            yield f"{flag[2:]}/lld"
        elif before == "-isystem":  # another version of the library may appear in its parent
            yield from (flag, os.path.dirname(flag))
