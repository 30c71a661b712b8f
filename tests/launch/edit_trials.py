"""Random constructs, flags and edits: after each edit, an object by `launch` and by the driver.

``python -m tests.launch.edit_trials CLANG COUNT [SEED [KIND [pch]]]`` prints what differs of
object, depfile, other files, messages or status; with ``pch``, `OFFLOAD_PCH` is set. A trial is one
source with its headers, in two folders, which have the same name in turn: one is compiled by the
driver, the other one behind `launch`. Each edit is made in both. Objects and manifests are damaged,
and calls killed, in ours alone.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from offload_tool.launch.pch import FOLDER as PCH_FOLDER
from tests.launch.compiles import (
    ALWAYS_IN_STAGES,
    CUID,
    IN_STAGES_WITH_PCH,
    environment,
    files,
    run,
)
from tests.launch.test_cuda import OWN as CUDA
from tests.pch_constructs.compositions import composed
from tests.pch_constructs.constructs import CONSTRUCTS
from tests.run.driverless_trials import ODD, PIECES, USUAL, VARIABLES, WRONG, alternatives

_DRIVERS = ("--offload-new-driver", "--no-offload-new-driver")
_CHOICES = [
    ("-std=c++17", "-std=c++20", "-std=gnu++14"),
    ("-O0", "-O1", "-O2", "-O3", "-Os", "-Og"),
    ("-g", "-gline-tables-only", "-ggdb", "-g0"),
    ("-fPIC", "-fPIE", "-fno-pic"),
    ("-fgpu-rdc", "-fno-gpu-rdc"),
    _DRIVERS,
    (
        "--offload-compress",
        "--no-offload-compress",
        "--offload-compress --offload-compression-level=3",
    ),
    ("--offload-device-only", "--offload-host-only", "--offload-jobs=2"),
    ("-foffload-lto", "-foffload-lto=thin", "-fno-offload-lto"),
    ("-Xoffload-linker -O1", "-Xoffload-linker --lto-O1", "-Xoffload-linker --gc-sections"),
    ("-Rpass=.*", "-Rpass-missed=inline", "-mllvm -amdgpu-internalize-symbols=0", "-mcumode"),
    ("-MD", "-MMD", "-MD -MP", "-MD -MF other.d", "-MMD -MT a -MQ b$c"),
    ("-DVALUE_2=2", "-UVALUE", '-DTEXT="a b\\"c"'),
    ("-I.", "-isystem .", "-iquote ."),
    ("-Xarch_gfx906 -DONE", "-Xarch_device -O1", "-Xarch_host -O3", "-Xarch_gfx942 -g"),
    ("-Wall -Wextra", "-Weverything", "-w", "-Werror"),
    ("-ffast-math", "-fno-exceptions", "-fno-rtti", "-ffunction-sections", "-fdata-sections"),
    ("-march=native", "-m64", "-mavx2"),
    ("-save-temps", "-save-temps=obj", "-fstack-usage", "-fsave-optimization-record"),
    ("--no-offload-arch=gfx906", "--offload-arch=gfx1030,gfx1201", "--offload-arch=all"),
    ("-include value.h", "-fvisibility=hidden", "-fcoverage-mapping -fprofile-instr-generate"),
    ("-flto", "-flto=thin", "-fuse-cuid=none", "-foffload-lto"),
    ("-mllvm -amdgpu-early-inline-all", "-mcode-object-version=4", "-munsafe-fp-atomics"),
    ("-fgpu-default-stream=per-thread", "-fhip-new-launch-api", "-fgpu-flush-denormals-to-zero"),
    ("-fdiagnostics-color=always", "-fno-caret-diagnostics", "-ferror-limit=1"),
    ("-Wl,--nothing", "-L.", "-no-such-option", "-Wno-no-such"),
]
_OF_CUDA = [
    ("-std=c++17", "-std=c++20"),
    ("-O0", "-O1", "-O2", "-Os"),
    ("-Xarch_host -g", "-Xarch_host -gline-tables-only", "-g0"),
    ("-fPIC", "-fno-pic"),
    ("-fgpu-rdc", "-fno-gpu-rdc"),
    ("--offload-new-driver", "--no-offload-new-driver"),
    ("-MD", "-MMD -MP", "-MD -MF other.d"),
    ("-Xarch_sm_90 -DONE", "-Xarch_device -O1", "-Xarch_host -O3"),
    ("-Wall", "-w", "-Werror -Weverything"),
    ("--cuda-include-ptx=all", "--no-cuda-include-ptx=sm_90", "-Xcuda-ptxas --warn-on-spills"),
    ("-ffast-math", "-fcuda-flush-denormals-to-zero", "-fgpu-approx-transcendentals"),
    ("--offload-arch=sm_86,sm_89", "--no-offload-arch=sm_80", "--offload-arch=sm_90a"),
    ("-x cuda", "-DVALUE_2=2", "-include value.h", "-mllvm -nvptx-fma-level=0"),
    ("-fno-exceptions", "-save-temps", "-fsave-optimization-record", "-fcuda-short-ptr"),
]
_OBJECTS = ("s.o", "out/s.o", "ü b/with $'.o")
_ARCHS = {
    "hip": ("gfx906", "gfx90a:xnack+", "gfx942", "gfx1100"),
    "cuda": ("sm_80", "sm_90", "sm_89"),
}
_ONLY = "only.h"
"""A header that one target reads."""
_BEGIN = """\
#if defined(__gfx90a__) || (defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900)
#include "only.h"
#endif
"""
_END = """
#ifndef VALUE_OF_ONE
#define VALUE_OF_ONE 1
#endif
int edited_host(int x) { return x + 100; } // a comment
__attribute__((global)) void edited(int* p) { p[0] = 200 + VALUE_OF_ONE; }
void edited_launch(int* p) { edited<<<1, 1>>>(p); }
"""
_PLAIN = "int edited_host(int x) { return x + 100; } // a comment\n"
"""A source without device code."""
_MORE_PIECES = (
    '#ifndef __HIP_DEVICE_COMPILE__\nasm(".data\\n.incbin \\"data\\"\\n.text");\n#endif\n',
    'const unsigned char embedded[] = {\n#embed "data"\n};\n',
    '#include "by_link.h"\n',
)
_KEPT = ("", ".h", ".hip", ".cu", ".cfg", ".d", ".manifest")
"""The suffixes of sources, depfiles and manifests."""
_LINES = re.compile(
    r"offload-tool launch: .*|In device code for .*:|\d+ (warning|error)s?.* generated.*"
)
"""Of messages: those that differ from the driver's, as documented."""
_RANDOM = re.compile(
    rb"-[0-9a-z]{6}(?:[0-9a-z]{2})?(?=[./\"\s'])|\(0x[0-9a-f]+\)|0x[0-9a-f]{6,}|\d+\.\d+|\d+%"
)
"""Of names and times that differ from run to run of the driver."""
_TEMPORARY = re.compile(r"-[0-9a-f]{6}(?=[-.])")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
_TRIES, _IS_PLAIN = 8, 0.06
_WRONG = 0.05
"""Of projects that do not compile, how many are tried all the same."""
_AGAIN = 6
"""How often the driver may show that its bytes are random."""


class Trial:
    """One source with its headers, and how it is compiled."""

    launch: Sequence[str]

    def __init__(
        self, clang: Sequence[str], seed: int, folder: Path, kind: str = "hip", pch: str = ""
    ) -> None:
        """With `pch`, `launch` has precompiled headers."""
        self.chosen = random.Random(f"{kind} {seed}{pch}")
        self._has_pch = bool(pch)
        self.launch = IN_STAGES_WITH_PCH if pch else ALWAYS_IN_STAGES
        self.folder = folder
        self.kind = kind
        self.count: Counter[str] = Counter()
        self._clang = clang
        self._choices = [*_CHOICES, *_OF_CUDA] if kind == "cuda" else _CHOICES
        for _ in range(_TRIES):
            self._make()
            if self._by_driver().returncode == 0 or self.chosen.random() < _WRONG:
                break

    def _make(self) -> None:
        """Choose all that belongs to a trial, and write the project."""
        chosen = self.chosen
        shutil.rmtree(self.folder, ignore_errors=True)
        self._object = chosen.choice((*_OBJECTS[:1], *_OBJECTS))
        self._archs = chosen.sample(_ARCHS[self.kind], chosen.choice((1, 2, 2, 3)))
        self._flags = self._random_flags()
        self._is_response = chosen.random() < 0.15
        self._variables: dict[str, str] = {}
        if chosen.random() < 0.15:
            self._set_variable()
        self._front: list[str] = []
        if not self._has_pch or chosen.random() < 0.3:
            self._choose_launcher()
        self._pieces = self._random_pieces()
        self._is_plain = chosen.random() < _IS_PLAIN
        self._composition = composed(chosen, list(CONSTRUCTS), self.kind)
        if self._has_pch:
            text = "".join(self._composition.files.values())
            self._variables["OFFLOAD_PCH"] = ":".join(
                {*re.findall(r"#include [<\"]([^>\"]+)", text)}
            )
        for name in ("ours", "driver"):
            self._enter(name)
            self._write()
            self._leave(name)

    # -- the project -----------------------------------------------------------------------

    @property
    def build(self) -> Path:
        """The folder in which the compiler runs."""
        return self.folder / "build"

    def _enter(self, name: str) -> None:
        if (self.folder / name).exists():
            (self.folder / name).rename(self.build)
        else:
            self.build.mkdir(parents=True)

    def _leave(self, name: str) -> None:
        self.build.rename(self.folder / name)

    def _write(self) -> None:
        """Write the project."""
        self._composition.write(self.build)
        (self.build / self._object).parent.mkdir(exist_ok=True)
        source = self.build / self._composition.source
        text = "" if self._is_plain else source.read_text() + "".join(self._pieces)
        text = f"{text}{_BEGIN}" if self._has_pch else f"{_BEGIN}{text}"
        source.write_text(f"{text}{_PLAIN if self._is_plain else _END}")
        beside = source.parent
        for name, text in (
            (_ONLY, "#pragma once\n"),
            ("data", "1\n"),
            ("real.h", "#pragma once\n#define REAL 1\n"),
            ("options", "-O1 -DFROM_FILE\n"),
            ("c.cfg", "-O1 -DFROM_CONFIGURATION\n"),
            ("sub/x.h", "#define X_H 1\n"),
            ("value.h", "#define VALUE_H 1\n"),
        ):
            for place in {self.build, beside}:
                (place / name).parent.mkdir(exist_ok=True)
                (place / name).write_text(text)
        (beside / "by_link.h").symlink_to("real.h")

    def _random_pieces(self) -> list[str]:
        """Return what else the source has."""
        chosen = self.chosen
        known = [*PIECES, *_MORE_PIECES, *_MORE_PIECES]
        found = chosen.sample(known, chosen.choice((0, 0, 1, 1, 2)))
        if chosen.random() < 0.05:
            found.append(chosen.choice(WRONG))
        found = [piece.replace("*name", "*name_of_file") for piece in found]
        if any("__TIME__" in piece for piece in found):
            self._variables["SOURCE_DATE_EPOCH"] = "1000000000"
        return found

    def _random_flags(self) -> list[str]:
        chosen = self.chosen
        picked = [chosen.choice(_DRIVERS)]
        counts = (0, 0, 0, 1, 2) if self._has_pch else (0, 1, 1, 2, 3)  # most rule out a PCH
        for choices in chosen.sample(self._choices, chosen.choice(counts)):
            picked.append(chosen.choice(choices))
        if chosen.random() < 0.4:
            picked.append(chosen.choice(alternatives(USUAL)))
        if chosen.random() < 0.15:
            picked.append(chosen.choice(alternatives(ODD)))
        picked.append(chosen.choice(("", "-MD", "-MD", "-MD", "-MMD", "-MD -MF other.d -MP")))
        args = shlex.split(" ".join(picked))
        return [] if "-include-pch" in args else args

    def _set_variable(self) -> None:
        name, _, value = shlex.split(self.chosen.choice(alternatives(VARIABLES)))[0].partition("=")
        self._variables[name] = value

    def _choose_launcher(self) -> None:
        how = self.chosen.random()
        if how < 0.2 and shutil.which("ccache"):
            known = {"CCACHE_DIR": f"{self.folder}/ccache", "CCACHE_CONFIGPATH": "/dev/null"}
            self._variables |= {"OFFLOAD_LAUNCHER": "ccache", **known}
        elif how < 0.3:
            self._variables["OFFLOAD_LAUNCHER"] = "env"
        elif how < 0.35 and shutil.which("ccache"):
            self._front = ["ccache"]
            self._variables["CCACHE_DISABLE"] = "1"

    def command(self) -> list[str]:
        """Return the driver's command."""
        own = CUDA if self.kind == "cuda" else ()
        flags = [
            *("-x", self.kind, CUID, *own, f"--offload-arch={','.join(self._archs)}"),
            *self._composition.command(self.build),
            *(["-fgpu-rdc"] if self._composition.is_rdc else []),
            *self._flags,
        ]
        if self._is_response:
            (self.build / "flags").write_text("\n".join(map(_quoted, flags)))
            flags = ["@flags"]
        return [*self._clang, *flags, "-c", self._composition.source, "-o", self._object]

    # -- edits -----------------------------------------------------------------------------

    def _change(self, change: Callable[[], object]) -> None:
        """Change both projects, whose files have equal times."""
        state = self.chosen.getstate()
        now = time.time_ns()
        for name in ("ours", "driver"):
            self.chosen.setstate(state)
            self._enter(name)
            before = {path: path.stat().st_mtime_ns for path in self.build.rglob("*")}
            change()
            for path in self.build.rglob("*"):
                if path.is_file() and path.stat().st_mtime_ns != before.get(path):
                    os.utime(path, ns=(now, now))
            self._leave(name)

    def _replace(self, old: str, new: str, name: str = "") -> None:
        path = self.build / (name or self._composition.source)
        text = path.read_text()
        path.write_text(text.replace(old, new, 1))

    def _number(self) -> int:
        return self.chosen.randrange(1, 1 << 20)

    def comment(self) -> None:
        """Change a comment in the source, with another number of lines or without."""
        new = self.chosen.choice(("// a longer comment", "// of\n// more lines", "/* a */ // a"))
        old, new = self.chosen.choice((("// a comment", new), ("", "// at the beginning\n")))
        self._change(lambda: self._replace(old, new))

    def host_code(self) -> None:
        """Change host code."""
        self._change(lambda: self._replace("return x + 1", f"return x + {self._number()} + 1"))

    def header_of_one(self) -> None:
        """Change a header that one target reads."""
        text = self.chosen.choice(("// a comment\n", "#warning said\n", "#define VALUE_OF_ONE 7\n"))
        text += f"#define NUMBER {self._number()}\n"
        folder = Path(self._composition.source).parent
        self._change(lambda: (self.build / folder / _ONLY).write_text(text))

    def kernel(self) -> None:
        """Change a kernel."""
        self._change(lambda: self._replace("p[0] = 200", f"p[0] = {self._number()} * 200"))

    def touch(self) -> None:
        """Make files newer with the same content."""
        self._change(lambda: [os.utime(path) for path in self.build.rglob("*.h*")])

    def there_and_back(self) -> None:
        """Take back a change, after a compile or before."""
        source = self._composition.source
        self._change(lambda: self._replace("p[0] = 200", "p[0] = 0 * 200"))
        if self.chosen.random() < 0.5:
            self._compile_both()
        self._change(lambda: self._replace("p[0] = 0 * 200", "p[0] = 200", source))

    def targets(self) -> None:
        """Add a target, remove one, or change their order."""
        more = [arch for arch in _ARCHS[self.kind] if arch not in self._archs]
        how = self.chosen.random()
        if more and how < 0.6:
            self._archs.insert(self.chosen.randint(0, len(self._archs)), self.chosen.choice(more))
        elif len(self._archs) > 1 and how < 0.85:
            self._archs.pop(self.chosen.randrange(len(self._archs)))
        else:
            self._archs.reverse()

    def flags(self) -> None:
        """Choose other flags, maybe with another depfile."""
        for depfile in self.folder.rglob("*.d"):
            depfile.unlink()
        self._flags = (
            self._random_flags()
            if self.chosen.random() < 0.5
            else self._flags + self.chosen.choice(self.chosen.choice(self._choices)).split()
        )

    def variable(self) -> None:
        """Set another variable."""
        self._set_variable()

    def header(self) -> None:
        """Append to any header of the project."""
        folder = self.build if self.build.exists() else self.folder / "ours"
        names = [name for name in self._composition.files if name.endswith(".h")]
        name = self.chosen.choice(names)
        assert (folder / name).exists()
        text = self.chosen.choice(("// a comment\n", "#define OF_A_HEADER 1\n", "int of_it;\n"))

        def add() -> None:
            with (self.build / name).open("a") as file:
                file.write(text.replace("of_it", f"of_it{self._number()}"))

        self._change(add)

    def appears(self) -> None:
        """Let a header appear, or a file of that name, early on the search path."""
        folder = Path(self._composition.source).parent
        headers = [name for name in self._composition.files if name.endswith(".h")]
        name = self.chosen.choice(headers)
        places = [f"{place}/{Path(name).name}" for place in ("early", "none", "shadow", "inc/sub")]
        place = self.chosen.choice([f"{folder}/appears.h", f"{folder}/{Path(name).name}", *places])

        def write() -> None:
            path = self.build / place
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                real = (self.build / name).read_text() if path.name != "appears.h" else ""
                path.write_text(f"{real}\n#define APPEARED 1\nint it_appeared();\n")

        self._change(write)

    def data(self) -> None:
        """Change what assembly and ``#embed`` read."""
        folder = Path(self._composition.source).parent
        text = f"{self._number()}\n"

        def write() -> None:
            for place in {self.build, self.build / folder}:
                (place / "data").write_text(text)

        self._change(write)

    def link(self) -> None:
        """Replace a link to a header by a copy, or by another link."""
        folder = Path(self._composition.source).parent
        how = self.chosen.random() < 0.5

        def write() -> None:
            path = self.build / folder / "by_link.h"
            path.unlink()
            if how:
                path.write_text("#pragma once\n#define REAL 2\n")
            else:
                path.symlink_to(_ONLY)

        self._change(write)

    def damage(self) -> None:
        """Damage object, depfile or manifest."""
        chosen = self.chosen
        path = self.folder / "ours" / self._object
        manifest = path.with_name(f".{path.name}.manifest")
        other = self.folder / "driver" / self._object
        how = chosen.randrange(8)
        if how == 0:
            path.unlink(missing_ok=True)
        elif how == 1 and path.exists():
            data = path.read_bytes()
            path.write_bytes(data[: chosen.randrange(len(data) + 1)])
        elif how == 2 and path.exists():
            data = path.read_bytes()
            at = chosen.randrange(len(data) or 1)
            times = path.stat()
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if data else b"x")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        elif how == 3 and other.exists():
            path.unlink(missing_ok=True)
            shutil.copy2(other, path)
        elif how == 4 and path.exists():
            shutil.copy2(path, path.with_name("copy"))
            path.unlink()
            os.link(path.with_name("copy"), path)
            self._change(lambda: (self.build / self._object).with_name("copy").unlink(True))
        elif how == 5 and manifest.exists():
            data = manifest.read_bytes()
            at = chosen.randrange(len(data))
            manifest.write_bytes(data[:at] + chosen.choice((b"", b"0", b"}")) + data[at + 1 :])
        elif how == 6:
            manifest.unlink(missing_ok=True)
        else:
            for depfile in (self.folder / "ours").rglob("*.d"):
                depfile.unlink()

    def killed(self) -> None:
        """Kill a call at any moment; then another edit may follow."""
        self.chosen.choice((self.kernel, self.header_of_one, self.comment))()
        self._enter("ours")
        with self._started() as process:
            time.sleep(self.chosen.random())
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert [*self.build.rglob(f"{Path(self._object).name}.*")] == []
        self._leave("ours")
        if self.chosen.random() < 0.5:
            self.kernel()

    def mistake(self) -> None:
        """Make a mistake for all passes or one, compile, and mend it; then an edit may follow."""
        where = self.chosen.choice(("1", "0", "defined(__gfx90a__)", "defined(__gfx906__)"))
        where = self.chosen.choice((where, "!defined(__HIP_DEVICE_COMPILE__)"))
        mistake = f"#if {where}\nint mistake = none;\n#endif\n"
        old = "int edited_host"
        self._change(lambda: self._replace(old, mistake + old))
        self._compile_both()
        self._change(lambda: self._replace(mistake, ""))
        self.chosen.choice((self.kernel, self.header_of_one, self.comment, self.nothing))()

    def two_at_once(self) -> None:
        """Run two calls for one object at once."""
        self.chosen.choice((self.kernel, self.header_of_one, self.comment))()
        self._enter("ours")
        processes = []
        for _ in range(2):
            processes.append(self._started())
            time.sleep(self.chosen.choice((0, 0.05, 0.2)))
        for process in processes:
            process.wait()
        self._leave("ours")

    def remove_pchs(self) -> None:
        """Remove precompiled headers, or a part of each file; or forbid new ones."""
        folder, how = self.folder / "ours" / PCH_FOLDER, self.chosen.randrange(3)
        for path in sorted(folder.glob("*")):
            if how == 0:
                path.unlink()
            elif how == 1:
                os.truncate(path, self.chosen.randrange(path.stat().st_size + 1))
        if how == 2:
            shutil.rmtree(folder, ignore_errors=True)
            folder.write_text("")

    def nothing(self) -> None:
        """Edit nothing."""

    EDITS = (comment, host_code, header_of_one, kernel)
    KINDS = (targets, flags, touch, there_and_back)
    IN_BUILDS = (header, appears, data, link, variable, nothing)
    OF_PCHS = (header, header, appears, touch, remove_pchs, killed, two_at_once)
    OTHERS = (*IN_BUILDS, damage, killed, mistake, mistake, two_at_once)

    # -- judging ---------------------------------------------------------------------------

    def judge(self) -> list[str]:
        """Compile after each edit; return what differs."""
        chosen = self.chosen
        edits = [*self.EDITS, *chosen.sample(self.KINDS, 2), *chosen.sample(self.OTHERS, 2)]
        edits += self.OF_PCHS if self._has_pch else ()
        chosen.shuffle(edits)
        found = []
        for edit in (Trial.nothing, *edits):
            edit(self)
            wrong = self._compare()
            self._remove_side_files()
            self.count["compiles"] += 1
            self.count[f"after {edit.__name__}"] += 1
            found += [f"after {edit.__name__}: {each}" for each in wrong]
            if wrong:
                found[-1] += f"; {self._variables} {shlex.join(self.command_as_text())}"
                break
        return found

    def command_as_text(self) -> list[str]:
        """Return the command without a response file, for messages."""
        is_response, self._is_response = self._is_response, False
        try:
            return self.command()
        finally:
            self._is_response = is_response

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self._front, *self.launch, *self.command()],
            cwd=self.build,
            env=environment(self._variables),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _compile_both(
        self,
    ) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
        self._enter("ours")
        ours = run([*self._front, *self.launch, *self.command()], self.build, self._variables)
        self._leave("ours")
        return ours, self._by_driver()

    def _by_driver(self) -> subprocess.CompletedProcess[str]:
        self._enter("driver")
        # The driver reads none of the variables about launchers.
        done = run(self.command(), self.build, self._variables)
        self._leave("driver")
        return done

    def _compare(self) -> list[str]:
        ours, driver = self._compile_both()
        self._count(ours.stderr)
        if ours.returncode != driver.returncode:
            return [f"status {ours.returncode} for {driver.returncode}: {ours.stderr[-500:]}"]
        if "please report it" in ours.stderr:
            return [ours.stderr]
        if driver.returncode:
            self.count["errors"] += 1
            left = [(self.folder / name / self._object).exists() for name in ("ours", "driver")]
            return ["there is an object"] if left[0] and not left[1] else []
        wrong = []
        printed = [  # lld prints in a random order, and the names of temporary files
            sorted(_TEMPORARY.sub("-X", each.stdout).splitlines()) for each in (ours, driver)
        ]
        if printed[0] != printed[1]:
            wrong.append(f"standard output: {printed[0][:6]} for {printed[1][:6]}")
        messages, expected = lines(ours.stderr), lines(driver.stderr)
        if messages != expected and lines(self._by_driver().stderr) == expected:  # no times
            wrong.append(f"messages: {sorted(messages ^ expected)[:6]}")
        names = self._differing()
        for _ in range(_AGAIN if names else 0):
            before = self._results("driver")
            self._by_driver()
            after = self._results("driver")
            if before != after:
                self.count["random"] += 1
                return wrong
        return wrong + [f"'{name}' differs" for name in names]

    def _results(self, name: str) -> dict[str, bytes]:
        found = files(self.folder / name)
        no = (".json", ".csv")
        return {x: y for x, y in found.items() if not (x.endswith(no) or x.startswith(PCH_FOLDER))}

    def _differing(self) -> list[str]:
        ours, driver = self._results("ours"), self._results("driver")
        wrong = []
        for name in sorted(ours.keys() | driver.keys()):
            found, expected = ours.get(name), driver.get(name)
            if name.endswith(".d") and found and expected:
                found = without_added(found, expected)
            if found != expected:
                wrong.append(name)
        return wrong

    def _remove_side_files(self) -> None:
        """Remove what this compile has written besides object and depfile: the next may not."""
        for path in self.folder.glob("*/**/*"):
            is_object = str(path).endswith(f"/{self._object}")
            is_kept = is_object or PCH_FOLDER in path.parts
            if path.is_file() and path.suffix not in _KEPT and not is_kept:
                path.unlink()

    def _count(self, messages: str) -> None:
        self.count["passes with a precompiled header"] += messages.count(": with the precompiled")
        self.count["passes without"] += messages.count(": without a precompiled")
        for what in ("split", "passed through", "not remembered"):
            self.count[what] += f"offload-tool launch: {what}: " in messages
        for what in ("current", "compiled", "front end only", "from the launcher"):
            self.count[f"passes {what}"] += len(
                re.findall(rf"^offload-tool launch: [\w:+-]+: {what}", messages, re.M)
            )


def _quoted(word: str) -> str:
    """Return a word as response files have it."""
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"'


def lines(messages: str) -> set[str]:
    text = _RANDOM.sub(b"-X", _COLOUR.sub("", messages).encode())
    plain = text.decode().splitlines()
    return {line for line in plain if not _LINES.fullmatch(line)}


def without_added(found: bytes, expected: bytes) -> bytes:
    """Return a depfile without the headers that only device passes read."""
    for line in found.splitlines():
        name = line.strip().removesuffix(b" \\").rstrip(b":")
        if name and name not in expected:
            found = found.replace(b" \\\n  " + name + b"\n", b"\n", 1)
            found = found.replace(b" \\\n  " + name + b" \\\n", b" \\\n", 1)
            found = found.replace(b"\n" + name + b":\n", b"\n", 1)
    return found


def main(clang: str, count: int, first: int = 0, kind: str = "hip", pch: str = "") -> int:
    """Run trials; return in how many something differs."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="offload-edits-") as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/queries"
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):  # what was found until then is printed
            for seed in range(first, first + count):
                trial = Trial(shlex.split(clang), seed, Path(folder, "trial"), kind, pch)
                found = trial.judge()
                counts += trial.count
                counts["trials"] += 1
                counts["trials with differences"] += bool(found)
                for line in found:
                    sys.stdout.write(f"{seed}: {line}\n")
                sys.stdout.flush()
    text = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    sys.stdout.write(f"{text}\n")
    return counts["trials with differences"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), *map(int, sys.argv[3:4]), *sys.argv[4:]) > 0)
