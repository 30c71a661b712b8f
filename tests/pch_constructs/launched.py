"""One composition by `launch` with OFFLOAD_PCH, and by the driver: first, and after edits."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from offload_tool.launch.query_plan import PassedThroughError
from offload_tool.launch.split_compile import run_split
from tests.conftest import try_tool
from tests.launch.compiles import CUID, environment
from tests.launch.edit_trials import lines, without_added
from tests.launch.test_cuda import OWN
from tests.pch_constructs.compositions import Composition
from tests.pch_constructs.trial import Outcome, inside

DRIVERS = ("--no-offload-new-driver", "--offload-new-driver")
MAP = "-ffile-prefix-map={here}/="
_ARCHS = {"hip": "gfx906,gfx90a", "cuda": "sm_80,sm_90"}
_AGAIN = 8
_INCLUDE = r"#include [<\"]([^>\"]+)"
_USE = "#ifdef EDITED\nint edited_use() { return EDITED; }\n#endif\n"
_FUNCTION = "inline int edited_used(int x) { return x + 1; }\n#define EDITED edited_used(3)\n"
EDITS: dict[str, str] = {
    "a comment": "// a comment\n",
    "an unused function": "static inline int edited_unused(int x) { return x; }\n",
    "a used function": _FUNCTION,
    "a macro": "#undef EDITED\n#define EDITED 7\n",
    "a touch": "",
    "a header that appears": "",
}
"""What is appended to a header."""


Choice = tuple[list[str], list[str]]


class LaunchTrial:
    """Compiles compositions, one after the other, in one folder."""

    def __init__(self, folder: Path, clang: Sequence[str], choose: Callable[[], Choice]) -> None:
        """`choose` returns the flags and edits for the next composition."""
        self.project = folder / "project"
        self._why = ""
        self._clang, self._choose = clang, choose

    def judge(self, composition: Composition) -> Outcome:
        """Compile two sources that begin alike, then both after each edit; compare each result."""
        shutil.rmtree(self.project, ignore_errors=True)
        self.project.mkdir(parents=True)
        composition.flags.insert(0, "-I{at}early")
        composition.files[composition.source] += _USE
        flags, edits = self._choose()
        composition.flags += flags
        source = Path(composition.source)
        if MAP in flags:  # of absolute names, as CMake has them
            composition.flags = [each.replace("{at}", "{here}/") for each in composition.flags]
            source = self.project / source
        with inside(self.project):
            composition.write(self.project)
            sources = [source, source.with_stem("other")]
            shutil.copy2(*sources)
            used: list[str] = []
            for what in ("", *edits):
                self._edit(composition, what)
                for each in sources:
                    wrong = self._compared(composition, each, used)
                    if wrong is not None:
                        return wrong._replace(why=f"after {what or 'nothing'}: {wrong.why}")
        return Outcome("same", " ".join(sorted({*used}))) if used else Outcome("refused", self._why)

    def _edit(self, composition: Composition, what: str) -> None:
        names = [name for name in composition.files if name.endswith(".h")][1:]  # but launch.h
        name = names[len(what) % len(names)]
        if what == "a header that appears":
            new = Path("early", Path(name).name)
            new.write_text(f"{Path(name).read_text()}int it_appeared();\n")
        elif what:
            with Path(name).open("a") as file:
                file.write(EDITS[what])
            os.utime(name)

    def _compared(self, composition: Composition, source: Path, used: list[str]) -> Outcome | None:
        """Compile by both; return what differs, or why there is nothing to compare."""
        output, text = str(source.with_suffix(".o")), "".join(composition.files.values())
        driver = try_tool(*self._command(composition, source, output, "driver.o"))
        if driver.returncode:
            return Outcome("broken", driver.stderr[:500])
        messages: list[str] = []
        variables = environment({"OFFLOAD_PCH": ":".join(sorted({*re.findall(_INCLUDE, text)}))})
        command = self._command(composition, source, output, output)
        try:
            status, stdout, errors = run_split(command, variables, messages.append)
        except PassedThroughError as error:
            return Outcome("refused", f"passed through: {error}")
        for target, _, what in (line.partition(": ") for line in messages):
            if "precompiled header" in what:
                self._why = what.removeprefix("without a precompiled header: ")
                used += [target] * what.startswith("with the")
        found = [Path(name).read_bytes() for name in (output, f"{output}.d")]
        expected = [Path(name).read_bytes() for name in ("driver.o", "driver.o.d")]
        if status or stdout or lines(errors.decode()) != lines(driver.stderr):
            return Outcome("different", f"status {status}: {errors.decode()}; {driver.stderr}")
        if without_added(found[1], expected[1]) != expected[1]:
            return Outcome("different", f"another depfile: {found[1]!r}, {expected[1]!r}")
        if found[0] == expected[0]:
            return None
        for _ in range(_AGAIN):
            try_tool(*self._command(composition, source, output, "driver.o"))
            if Path("driver.o").read_bytes() != expected[0]:
                return Outcome("random", "the driver makes other bytes each time")
        return Outcome("different", f"another object: {messages}")

    def _command(
        self, composition: Composition, source: Path, target: str, output: str
    ) -> list[str]:
        own = (*OWN, "-Xclang", "-target-sdk-version=11.8") if composition.kind == "cuda" else ()
        return [
            *(*self._clang, "-x", composition.kind, CUID, *own, "-Qunused-arguments"),
            f"--offload-arch={_ARCHS[composition.kind]}",
            *(*composition.command(self.project), *["-fgpu-rdc"] * composition.is_rdc),
            *("-MD", "-MT", target, "-MF", f"{output}.d", "-c", str(source), "-o", output),
        ]
