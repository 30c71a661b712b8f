"""``offload-tool compile SOURCE -o OUT ... [-- FLAGS...]``: one node of a build graph.

Builds call this command once per output, so it starts fast: it reads its own command line, and
runs the compiler before most modules are imported.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from offload_tool.cli.printing import print_bytes, print_error, print_lines
from offload_tool.errors import OffloadError, UsageError
from offload_tool.passes.source_kind import KINDS, derive_cuid, kind_of_suffix

if TYPE_CHECKING:
    from offload_tool.passes.command import Command
    from offload_tool.passes.compile_pass import Stage
    from offload_tool.run.run_pass import CommandRunner
    from offload_tool.sccache_dist.fallback import Finished

_WRONG_USAGE = 2
_WIDTH = 98
"""Columns of the help text."""


class _Formatter(argparse.HelpFormatter):
    """Has a fixed width: to find it, argparse would load a quarter of the standard library."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH)


class _OneLineParser(argparse.ArgumentParser):
    """Prints errors in one line, which is easy to find in a build's output."""

    def error(self, message: str) -> NoReturn:
        print_lines([f"{self.prog}: error: {message}"])
        self.exit(_WRONG_USAGE)


def run_compile(tool: str, args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command; return the compiler's exit status, or 1 for an error, 2 for usage."""
    # argparse's handling of "--" differs between versions of Python.
    split = args.index("--") if "--" in args else len(args)
    options = compile_parser(tool).parse_args(args[:split])
    try:
        if options.link:
            return _link(options, args[split + 1 :], environ)
        return _compile(options, args[split + 1 :], environ)
    except OffloadError as error:
        print_error(tool, error)
        return _WRONG_USAGE if isinstance(error, UsageError) else 1


def compile_parser(tool: str) -> argparse.ArgumentParser:
    """Return the parser of the arguments before ``--``; `tool` is the name for messages."""
    parser = _OneLineParser(
        prog=tool,
        usage="%(prog)s SOURCE -o OUT (--target-id ID | --host | --emit-host-ir) [options] "
        "[-- FLAGS...]",
        description="Compile a HIP, CUDA or OpenMP source in one pass, to device code for one "
        "target ID or to the host object without device code, and check the output. "
        "If .OUT.manifest shows that OUT is current, nothing is compiled. OUT is not "
        "written if its bytes would not change. After an error, there is no OUT.",
        epilog="For an OpenMP source, run --emit-host-ir first; all other passes take its output "
        "as --host-ir. The command finds the compiler as SCons builds do (OFFLOAD_CLANG, "
        "ROCM_PATH, PATH, the ziglang wheel), and so it finds ROCm and CUDA (OFFLOAD_ROCM_PATH, "
        "OFFLOAD_DEVICE_LIB_PATH, OFFLOAD_CUDA_PATH). OFFLOAD_LAUNCHER names a launcher for the "
        "compiler. OFFLOAD_DIST names the folder of a cluster that compiles HIP device code. The "
        "exit status is the compiler's, 1 if the output is not what was requested, or 2 for wrong "
        "usage.",
        allow_abbrev=False,
        formatter_class=_Formatter,
    )
    parser.add_argument(
        "sources", nargs="+", metavar="SOURCE", help="the source; with --link, all inputs"
    )
    parser.add_argument("-o", dest="output", required=True, metavar="OUT", help="the output")
    stages = parser.add_mutually_exclusive_group(required=True)
    stages.add_argument(
        "--target-id", metavar="ID", help="compile for this target ID, or for a CPU's triple"
    )
    stages.add_argument(
        "--host", dest="stage", action="store_const", const="host", help="compile host code"
    )
    stages.add_argument(
        "--emit-host-ir",
        dest="stage",
        action="store_const",
        const="host-ir",
        help="compile an OpenMP source to the host IR that its other passes read",
    )
    parser.add_argument(
        "--kind", choices=KINDS, help="the language (default: by suffix, .hip or .cu)"
    )
    parser.add_argument(
        "--cuid",
        metavar="X",
        help="the ID of this source in all its passes (default: derived from SOURCE)",
    )
    parser.add_argument(
        "--depfile", metavar="F", help="write a Makefile rule with the dependencies of OUT"
    )
    parser.add_argument(
        "--stamp",
        metavar="F",
        help="write an empty file each time, even if OUT does not change; the Makefile "
        "rule is then for F",
    )
    parser.add_argument("--host-ir", metavar="F", help="the host IR of an OpenMP source")
    parser.add_argument(
        "--rdc",
        action="store_true",
        help="make relocatable device code for a device link: bitcode, or PTX for CUDA",
    )
    parser.add_argument(
        "--pch", metavar="F", help="use the precompiled header F if it does not change the output"
    )
    parser.add_argument(
        "--emit-pch",
        action="store_true",
        help="write the precompiled header of the '#include <...>' lines at the beginning "
        "of SOURCE, for passes with the same flags",
    )
    parser.add_argument(
        "--link",
        action="store_true",
        help="link relocatable device code and archives of it into the image for "
        "--target-id; FLAGS are those of the linker, and those of the compiles that choose "
        "the compiler, such as -nogpulib (for CUDA, ptxas and nvlink or "
        "libnvJitLink link PTX and cubins; see OFFLOAD_PTXAS and OFFLOAD_NVLINK)",
    )
    parser.set_defaults(stage="device")
    return parser


def _compile(options: argparse.Namespace, flags: Sequence[str], environ: Mapping[str, str]) -> int:
    from offload_tool.run.pass_command import WantedPass
    from offload_tool.run.run_pass import Outputs, run_pass

    if len(options.sources) != 1:
        listed = ", ".join(options.sources)
        raise UsageError(f"expected one source, found {listed}; several are for --link")
    (source,) = options.sources
    stage: Stage = options.stage
    cuid = derive_cuid(source) if options.cuid is None else options.cuid
    target, rdc, host_ir = options.target_id, options.rdc, options.host_ir
    kind = _kind(options)
    wanted = WantedPass(kind, stage, cuid, source, environ, flags, target, rdc, host_ir)
    outputs = Outputs(options.output, options.depfile, options.stamp)
    if options.emit_pch:
        from offload_tool.pch.compile_command import emit_pch

        _refuse(options, ("pch", "host_ir"), "--emit-pch")
        return emit_pch(wanted, outputs, report=_print_message)
    launcher, folder = _engine(environ)
    runner = accelerator = None
    if launcher:
        runner = _with_launcher(launcher, environ, is_device=stage == "device")
    elif folder and stage == "device" and kind == "hip":
        runner = _distributed(folder, environ)
    if options.pch is not None:
        from offload_tool.pch.compile_command import PassWithPch

        accelerator = functools.partial(PassWithPch, options.pch, _print_message, launcher)
    return run_pass(wanted, outputs, runner=runner, accelerator=accelerator)


def _print_message(text: str) -> None:
    print_lines([f"offload-tool compile: {text}"])


def _refuse(options: argparse.Namespace, names: Sequence[str], mode: str) -> None:
    for name in names:
        if getattr(options, name) not in (None, False):
            raise UsageError(f"--{name.replace('_', '-')} is of no use with {mode}; leave it out")


def _link(options: argparse.Namespace, flags: Sequence[str], environ: Mapping[str, str]) -> int:
    from offload_tool.clang.options import INSTALLED, relevant_flags, without_values
    from offload_tool.errors import CompilerError
    from offload_tool.passes.capability_check import Job
    from offload_tool.run.device_link import WantedLink, run_device_link
    from offload_tool.run.pass_command import cached_toolchain
    from offload_tool.run.run_pass import Outputs
    from offload_tool.toolchain.supported_processors import targets_of_compiler

    if options.target_id is None:
        raise UsageError("--link links for one target ID; give --target-id ID")
    _refuse(options, ("cuid", "host_ir", "pch", "emit_pch"), "--link")
    kind = options.kind or ("cuda" if options.target_id.startswith("sm_") else "hip")
    devices = targets_of_compiler(
        [options.target_id], kind, functools.cache(lambda: cached_toolchain(environ))
    )
    if len(devices) != 1:
        raise UsageError(f"'{options.target_id}': expected one target ID for one output")
    try:  # the compiler of the sources, whose bitcode an older lld cannot read
        names = (devices[0].name,) if devices[0].target_id is not None else ()
        toolchain = cached_toolchain(environ, Job(kind, names, relevant_flags(flags)))
    except CompilerError:
        toolchain = cached_toolchain(environ)
    if devices[0].target_id is not None:  # which lld links, and clang for a CPU
        flags = [*without_values(flags, INSTALLED)]
    outputs = Outputs(options.output, options.depfile, options.stamp)
    sources = options.sources
    return run_device_link(
        WantedLink(devices[0], kind, toolchain, sources, outputs, environ, flags)
    )


def _kind(options: argparse.Namespace) -> str:
    if options.kind is not None:
        return str(options.kind)
    (source,) = options.sources
    kind = kind_of_suffix(source)
    if kind is None and (options.host_ir is not None or options.stage == "host-ir"):
        kind = "openmp"
    if kind is None:
        raise UsageError(f"'{source}': its suffix tells no offload kind; give --kind")
    return kind


# ---- where the compiler runs: OFFLOAD_LAUNCHER and OFFLOAD_DIST ----------------------


def _with_launcher(
    launcher: Sequence[str], environ: Mapping[str, str], *, is_device: bool
) -> CommandRunner:
    from offload_tool.run.launcher import run_launched
    from offload_tool.run.pass_command import cached_toolchain
    from offload_tool.run.run_pass import run_command
    from offload_tool.sccache_dist.fallback import run_with_fallback

    identity = cached_toolchain(environ).identity

    def run(command: Command, environment: Mapping[str, str]) -> int:
        def run_once(before: Sequence[str], command: Command) -> int:
            argv = command.argv()
            if not is_device:
                return run_command([*before, *argv], environment)
            return _finish(*run_with_fallback([*before, *argv], argv, environment))

        return run_launched(launcher, command, environment, identity, run_once)

    return run


def _distributed(folder: str, environ: Mapping[str, str]) -> CommandRunner:
    from offload_tool.run.pass_command import cached_toolchain
    from offload_tool.sccache_dist.cluster import load_cluster

    cluster = load_cluster(folder)
    cluster.check_compiler(cached_toolchain(environ))

    def run(command: Command, environment: Mapping[str, str]) -> int:
        print_lines(cluster.begin())
        return _finish(*cluster.run(command.argv(), environment))

    return run


def _finish(finished: Finished, message: str) -> int:
    print_bytes(finished.output)
    if message:
        print_lines([message])
    return finished.status


def _engine(environ: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the launcher, and the folder for distribution: see `launcher_args`."""
    launcher, folder = environ.get("OFFLOAD_LAUNCHER", ""), environ.get("OFFLOAD_DIST", "")
    if not launcher and not folder:  # the usual case
        return [], ""
    from offload_tool.run.launcher import launcher_args

    return launcher_args(launcher, folder), folder
