"""The map: where a newcomer looks for something, there it is.

If code moves, its row moves too. A question whose answer is in no file with an obvious name is a
reason to move the code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

ANSWERS = {
    # formats
    "the layout of a bundle in its binary form": "formats/bundle/binary.py: read_bundle",
    "the header of a compressed bundle": "formats/bundle/compressed.py: CompressedHeader",
    "the layout of the packager's 0x10FF10AD": "formats/offload_binary.py: read_offload_binary",
    "the layout of CUDA's fat binary": "formats/cuda/fatbin.py: read_cuda_fatbin",
    "the layout of a kpack archive": "formats/kpack/archive.py: read_kpack",
    "the members of an ar archive": "formats/objects/ar.py: ArchiveReader",
    "a section is added to an ELF file": "formats/objects/elf/edit_sections.py: plan_elf",
    "registers and LDS of an AMD kernel": (
        "formats/kernel_info/amdgpu_metadata.py: read_amdgpu_kernels"
    ),
    "add a GPU": "formats/targets/processors.py: PROCESSORS",
    "the text of a target ID": "formats/targets/target_id.py: TargetID",
    "the text of a bundle entry ID": "formats/targets/bundle_entry_id.py: BundleEntryID",
    "xnack conflict inside one bundle": "formats/targets/bundle_entry_id.py: find_conflicts",
    "which code object a device loads": "formats/targets/compatibility.py: find_fit",
    "the version of the bytes that are written": "formats/__init__.py: FORMAT_VERSION",
    # files
    "the format of a file": "containers/file_format.py: FileFormat",
    "archives within archives": "containers/walk.py: Walk",
    "outputs are complete or not there": "io/atomic_write.py: replace_file",
    "limits for untrusted files": "io/limits.py: Limits",
    # commands
    "a row of `list --json`": "cli/list.py: json_row",
    "what `thin` removes": "operations/thin.py: thin_file",
    "the options of the drop-in bundler": "cli/llvm/bundler.py: BUNDLER_COMMAND_LINE",
    "the options of `thin`": "cli/rewrite.py: add_thin",
    "a compile may run on a cluster": "sccache_dist/cluster.py: why_local",
    "an error becomes an exit status": "cli/_main.py: guarded",
    # compilers
    "which clang is used": "passes/choose_compiler.py: find_toolchain",
    "what an option of clang does": "clang/options.py: does",
    "`-###` is run": "clang/driver.py: query_plan",
    "the output of `-###` is read": "clang/job_plan.py: read_plan",
    "a result of a query is kept on disk": "toolchain/disk_cache.py: cached_result",
    "a precompiled header of a launch is made": "launch/pch.py: PlannedPchs",
    "OFFLOAD_LAUNCHER is split into words": "run/launcher.py: launcher_args",
    # one pass
    "the command of a device pass of `compile`": "run/pass_command.py: PassCommand",
    "`compile` starts the compiler": "run/run_pass.py: run_command",
    "the argument list of a pass": "passes/command.py: Command.argv",
    "whether a pass runs, for SCons and for commands": "manifest/pass_run.py: PassRun.is_current",
    "the inputs of a pass are compared with its record": "manifest/manifest.py: judge",
    "the file beside an output that has its inputs": "manifest/manifest.py: write_record",
    "the messages of why a pass runs": "manifest/key.py: Cause",
    "the inputs of a command of `compile`": "manifest/output_state.py: CommandResolver.key",
    "the backend is not run": "manifest/cut_off.py: Stages",
    "flags with which no precompiled header is used": "pch/eligibility.py: reason_of_flags",
    "an output is of another target": "passes/verify_output.py: check_code_object",
    # SCons
    "a construction variable's type and default": "scons/variables.py: VARIABLES",
    "the default of OFFLOADDEVICECOM": "scons/variables.py: COMMAND_LINES",
    "the compression that the user has set": "scons/settings.py: compression",
    "the compiler of a build": "scons/found_tools.py: toolchain",
    "the devices of OFFLOAD_ARCH": "scons/offload_arch.py: devices",
    "one pass for each of OFFLOAD_ARCH": "scons/graph/compile_nodes.py: device_nodes",
    "a node is up to date": "scons/state/node_classes.py: PassOutput.is_up_to_date",
    "the inputs of a node's pass": "scons/state/node_resolver.py: NodeResolver.key",
    "a node's device": "scons/state/node_info.py: NodeInfo",
    "dependencies of a source before its first compile": (
        "scons/state/scanner.py: DEPENDENCY_SCANNER"
    ),
    "SCons starts the compiler": "scons/spawn.py: run_args",
    "what OffloadBundle's action does": "scons/actions.py: BUNDLE",
    "a private name of SCons": "scons/compat.py: SignedAction",
}
"""Questions, and the file of the package that has the answer, with a name that it defines."""


def defined(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Yield the names that statements define: functions, classes, their methods, variables."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from defined(node.body, f"{prefix}{node.name}.")
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (prefix + each.id for each in targets if isinstance(each, ast.Name))


@pytest.mark.parametrize("question", ANSWERS)
def test_answer_is_where_one_looks(question: str) -> None:
    """The file defines the name; it does not import it from elsewhere."""
    path, name = ANSWERS[question].split(": ")
    text = (ROOT / "offload_tool" / path).read_text(encoding="utf-8")
    assert name in set(defined(ast.parse(text).body))


def entries() -> Iterator[tuple[list[str], str]]:
    """Yield each line of the tree of CONTRIBUTING.md, with the paths that it is about."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = page.split("## Where things are")[1].split("```")[1]
    folders = [""]
    row = re.compile(r"((?:  ){0,2})((?:\S+, )*\S+?(?:/|\.\w+))(?: .*|)")
    paths: list[str] = []
    for line in tree.strip("\n").split("\n"):
        if found := row.fullmatch(line):
            depth = len(found[1]) // 2
            paths = [folders[depth] + name for name in found[2].split(", ")]
            folders[depth + 1 :] = [paths[0]]
        yield paths, line


def test_contributors_map_names_what_there_is() -> None:
    """Each folder and file of the tree exists; so does each module that a row's text names."""
    rows = list(entries())
    named = {path for paths, _ in rows for path in paths}
    assert len(named) > 55
    missing = {path for path in named if not (ROOT / path).exists()}
    for paths, line in rows:
        begin = ROOT / paths[0]
        folder = begin if begin.is_dir() and len(paths) == 1 else begin.parent
        names = re.findall(r"\b[a-z_]+\.py\b", line)
        missing |= {f"{folder}: {name}" for name in names if not list(folder.rglob(name))}
    assert missing == set()
