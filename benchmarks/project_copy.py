"""Copies of a project of HIP, which CMake and SCons build for `ggml` and `replay`.

There is one for each way to build some of its sources:

- CMake's language HIP and Ninja, with the compiler alone, behind ``offload-tool launch``, and with
  `OFFLOAD_PCH` there;
- SCons without `OFFLOAD_PCH` and `OFFLOAD_CUTOFF`, with the cut-off, and with both.

Requires ``cmake``, ``ninja``, the headers of HIP and their CMake files; `OFFLOAD_CLANG` names the
compiler.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import JOBS, Figures, run_process, scons
from benchmarks.projects import Project
from offload_tool.formats.objects.elf.reader import ElfTables
from offload_tool.io.file_digests import digest_of
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.passes.source_kind import derive_cuid

TARGETS = ("gfx90a", "gfx942", "gfx1100", "gfx1030", "gfx908")
_CMAKE = """\
cmake_minimum_required(VERSION 3.21)
project(copy LANGUAGES HIP)
set(SOURCES {sources})
foreach(pair ${{SOURCES}})
    string(REPLACE "=" ";" pair ${{pair}})
    list(GET pair 0 source)
    list(GET pair 1 cuid)
    list(APPEND files ${{source}})
    set_source_files_properties(${{source}} PROPERTIES LANGUAGE HIP COMPILE_OPTIONS -cuid=${{cuid}})
endforeach()
add_library(copy OBJECT ${{files}})
target_compile_options(copy PRIVATE {flags} -ffile-prefix-map=${{CMAKE_SOURCE_DIR}}/=)
target_compile_definitions(copy PRIVATE {defined})
target_include_directories(copy PRIVATE {folders})
"""
_SCONS = """\
env = Environment(
    tools=["default", "offload"],
    toolpath=[PyPackageDir("offload_tool.scons")],
    OFFLOAD_ARCH={targets!r},
    OFFLOAD_KIND="hip",
    OFFLOAD_PCH={pch},
    OFFLOAD_CUTOFF={cutoff},
    OFFLOAD_SUMMARY="#summary.json",
    CCFLAGS={flags!r},
    CPPDEFINES={defined!r},
    CPPPATH={folders!r},
)
for source in {sources!r}:
    env.OffloadObject(source)
"""
_LAUNCH = f"{sys.executable};-m;offload_tool;launch"
_LAUNCHERS = {
    "driver": "",
    "launch": _LAUNCH,
    "launch and PCH": "env;OFFLOAD_PCH={pch};" + _LAUNCH,
}
_SCONS_MODES = {
    "SCons": (False, False),
    "cut-off": (False, True),
    "cut-off and PCH": (True, True),
}
MODES = (*_LAUNCHERS, *_SCONS_MODES)
"""The ways to build; the first is the reference."""
_SHF_ALLOC, _SHF_MERGE, _SHF_STRINGS = 0x2, 0x10, 0x20
_OF_LINKER = re.compile(rb"(?:__|\.)(hip_fatbin|rodata\.(?:str|cst)[\d.]*\d)(?:_\w+|\+0x\w+)?")
"""Relocations after a linker has merged constants, and named the section of device code."""


class Copy:
    """A copy of a checkout's sources, for one way to build them."""

    def __init__(
        self, mode: str, folder: Path, checkout: Path, project: Project, names: Sequence[str]
    ) -> None:
        self.mode = mode
        self.folder = folder
        self.project = project
        self._sources = {Path(path).stem: path for path in map(project.path, names)}
        assert len(self._sources) == len(names), "two sources of one name"
        self._command: Sequence[str] = ()
        self._began = 0
        self._code: dict[str, tuple[str, object]] = {}
        for name in project.copied:
            shutil.copytree(checkout / name, folder / name)
        for name, text in project.written.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def configure(self, targets: Sequence[str]) -> None:
        """Write the build files, for these targets."""
        project, sources = self.project, [*self._sources.values()]
        lists = {"flags": project.flags, "defined": project.defined, "folders": project.folders}
        common = {name: [*words] for name, words in lists.items()}
        if self.mode in _SCONS_MODES:
            pch, cutoff = _SCONS_MODES[self.mode]
            common |= {"sources": sources, "targets": [*targets]}
            text = _SCONS.format(**common, pch=pch, cutoff=cutoff)
            (self.folder / "SConstruct").write_text(text)
            self._command = scons(JOBS)
            return
        pairs = " ".join(f"{source}={derive_cuid(source)}" for source in sources)
        words = {each: " ".join(values) for each, values in common.items()}
        (self.folder / "CMakeLists.txt").write_text(_CMAKE.format(**words, sources=pairs))
        command = [
            *("cmake", "-G", "Ninja", "-B", "build"),
            "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
            f"-DCMAKE_HIP_COMPILER={shutil.which(find_toolchain().clang[0])}",
            f"-DCMAKE_HIP_ARCHITECTURES={';'.join(targets)}",
            f"-DCMAKE_HIP_COMPILER_LAUNCHER={_LAUNCHERS[self.mode].format(pch=project.pch)}",
        ]
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        self._command = ["ninja", "-C", "build", JOBS]

    def build(self) -> Figures:
        """Build; return the figures."""
        self._began = time.time_ns()
        return run_process(self._command, self.folder)

    def clean(self) -> None:
        """Remove all outputs of a build with Ninja."""
        subprocess.run(
            [*self._command, "-t", "clean"],
            cwd=self.folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def objects(self) -> dict[str, Path]:
        """Return the objects, by source name."""
        parts = ("host", "fatbin")
        found = {
            file.name.split(".")[0]: file
            for file in sorted(self.folder.rglob("*.o"))
            if file.name.split(".")[1] not in parts
        }
        assert found, f"{self.folder}: no objects"
        return found

    def rebuilt(self) -> list[str]:
        """Return the sources whose objects the last build has written."""
        files = self.objects().items()
        return [name for name, file in files if file.stat().st_mtime_ns >= self._began]

    def digests(self) -> dict[str, str]:
        """Return a digest of each object."""
        return {name: digest_of(file.read_bytes()) for name, file in self.objects().items()}

    def code(self) -> dict[str, object]:
        """Return each object's code and data for host and devices, with all relocations.

        They are equal for all ways to build. Whole objects are equal for CMake, and for SCons,
        whose linker orders sections and symbols otherwise.
        """
        for (name, file), digest in zip(
            self.objects().items(), self.digests().values(), strict=True
        ):
            if self._code.get(name, ("", None))[0] != digest:
                self._code[name] = digest, code_of(file)
        return {name: code for name, (_, code) in self._code.items()}

    def passes(self) -> list[Mapping[str, Any]]:
        """Return the passes that SCons ran in the last build; of none, Ninja tells."""
        summary = self.folder / "summary.json"
        passes = json.loads(summary.read_text())["passes"] if summary.exists() else []
        return [each for each in passes if each["outcome"] in ("compiled", "front end only")]

    def pass_digest(self, name: str, target: str, *what: str) -> str:
        """Return the digest of what the compiler prints for one pass, with the options `what`."""
        side = ["--offload-device-only", f"--offload-arch={target}"]
        words = [
            *(*find_toolchain().clang, "-x", "hip", *self.project.flags, *what),
            *(f"-D{each}" for each in self.project.defined),
            *(f"-I{each}" for each in self.project.folders),
            *(side if target != "host" else ["--offload-host-only"]),
            self._sources[name],
        ]
        done = subprocess.run(words, cwd=self.folder, check=True, stdout=subprocess.PIPE)
        return digest_of(done.stdout)

    def cut_off(self) -> str:
        """Return how many passes stopped after the front end, of devices and of the host."""
        counts = []
        for is_host in (False, True):
            outcomes = [
                each["outcome"] for each in self.passes() if (each["target"] == "host") is is_host
            ]
            counts.append(f"{outcomes.count('front end only')} of {len(outcomes)}")
        return ", ".join(counts) if self.passes() else ""


def make_copies(
    folder: Path,
    checkout: Path,
    project: Project,
    names: Sequence[str],
    targets: Sequence[str],
    modes: Sequence[str],
) -> list[Copy]:
    """Return copies of a checkout's sources, one for each of `modes`, not yet built."""
    copies = [Copy(mode, folder / mode, checkout, project, names) for mode in modes]
    for copy in copies:
        copy.configure(targets)
    return copies


def differences(copies: Sequence[Copy]) -> list[str]:
    """Return the objects that are not those of the first copy, with the copy's mode."""
    found: list[str] = []
    first: dict[bool, dict[str, str]] = {}
    expected = copies[0].code()
    # Of some sources, HIP leaves out all.
    assert any(".hip_fatbin" in str(code) for code in expected.values()), "no device code"
    for copy in copies:
        digests = copy.digests()
        same_tool = first.setdefault(copy.mode in _SCONS_MODES, digests)
        code = copy.code()
        names = {name for name in expected if code.get(name) != expected[name]}
        names |= {name for name in digests if digests[name] != same_tool.get(name)}
        found += [f"{copy.mode}: {name}" for name in sorted(names | (expected.keys() ^ code))]
    return found


def code_of(file: Path) -> object:
    """Return an object's code and data, and its relocations, without what a linker arranges."""
    tables = ElfTables(memoryview(file.read_bytes()))
    parts = []
    for name, row in zip(tables.names, tables.sections, strict=True):
        if row.sh_flags & _SHF_ALLOC and row.has_content:
            data = bytes(tables.data[row.sh_offset : row.sh_offset + row.sh_size])
            # A linker merges and orders constants.
            if row.sh_flags & _SHF_STRINGS:
                data = b"\0".join(sorted({*data.split(b"\0")}))
            elif row.sh_flags & _SHF_MERGE:
                starts = range(0, len(data), row.sh_entsize)
                data = b"".join(sorted({data[at : at + row.sh_entsize] for at in starts}))
            parts.append((name, digest_of(data)))
    command = [shutil.which("objdump") or "objdump", "-rw", str(file)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    text = _OF_LINKER.sub(rb"\1", done.stdout)
    _, *relocations = text.split(b"RELOCATION RECORDS FOR ")
    return sorted(parts), sorted(relocations)
