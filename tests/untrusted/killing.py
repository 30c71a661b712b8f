"""Commands that write, ended by a signal at any moment.

A stopped command (SIGTERM, SIGINT) leaves the output as it was, or whole, and nothing else. A
killed one (SIGKILL) leaves the output likewise; what else it leaves, the next run takes away,
apart from a whole output that has its temporary name for the moment between two system calls.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import run_tool
from tests.fuzz.seeds import GFX90A, GFX906, HOST, archive, bundle, hip_library

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
TOOL = (sys.executable, "-m", "offload_tool")
# A small program replaces the compiler: packing 100 MB of it would take long.
DIST = """
import sys
from offload_tool.cli import main
from offload_tool.sccache_dist import config as pack
pack.compiler_programs = lambda _: ["/bin/true"]
sys.exit(main(sys.argv[1:]))
"""
KERNEL = "__attribute__((global)) void kernel(int* p) { *p = VALUE; }\n"
_NOT_OURS = ("offload_tool-", "k-gfx906-")
"""A cache, and leftovers of clang's driver after any interruption."""
_OLD = b"what was there before"


_HOST, _GFX906 = HOST.decode(), GFX906.decode()
_HIP = "triple=amdgcn-amd-amdhsa,arch=gfx906,kind=hip"
VICTIMS = {
    "extract": "extract . -o ../o/out",
    "thin": "thin b --keep gfx906 -o ../o/out",
    "split": "split hip.so -o ../o/out",
    "merge": "merge b b2 -o ../o/out",
    "archive": "archive -o ../o/out b a.a",
    "embed": "embed b --cuid x -o ../o/out",
    "report": "report . -o ../o/out",
    "bundler": f"bundler -type=o -targets={_HOST},{_GFX906} -input=b -input=b2 -output=../o/out",
    "bundler -unbundle": f"bundler -type=a -unbundle -input=a.a -targets={_GFX906} "
    "-output=../o/out",
    "packager": f"packager -o ../o/out --image=file=b,{_HIP}",
    "wrapper": "wrapper --kind=openmp b -o ../o/out",
    "compile": "compile k.hip -o ../o/out --target-id gfx906 -- -nogpuinc -nogpulib -DVALUE=1 -w",
    "dist init": "dist init --scheduler http://h --token-file token -o ../o/out",
}
"""Commands that write ``../o/out``, from the folder of their inputs."""


class Trial:
    """One command and its folder; `run` kills it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder, self.outputs = folder, folder / "o"
        program = (sys.executable, "-c", DIST) if name == "dist init" else TOOL
        self.command = [*program, *VICTIMS[name].split()]
        self.environment = os.environ | {
            "TMPDIR": str(folder / "tmp"),
            "PYTHONPATH": str(Path.cwd()),
        }
        for name in ("in", "o", "tmp"):
            (folder / name).mkdir()
        data = bundle({HOST: b"", GFX906: b"image", GFX90A: random.Random(1).randbytes(3 << 20)})
        other = bundle({HOST: b"", b"hip-amdgcn-amd-amdhsa--gfx1100": bytes(range(256)) * 4096})
        inputs = {"b": data, "b2": other, "a.a": archive({b"m": data}), "token": b"right\n"}
        inputs["hip.so"] = hip_library()
        inputs["k.hip"] = KERNEL.encode()
        for name, content in inputs.items():
            (folder / "in" / name).write_bytes(content)
        self.finish()
        self.beside = self._names() - {"out"}
        """Files that belong to the output: a manifest."""
        self.is_folder = (self.outputs / "out").is_dir()
        self.whole = self._state()
        started = time.monotonic()
        self._restore(is_old=False)
        self.finish()
        self.seconds = time.monotonic() - started

    def finish(self) -> None:
        run_tool(*self.command, cwd=self.folder / "in", env=self.environment)

    def _names(self) -> set[str]:
        return {path.name for path in self.outputs.iterdir()}

    def _state(self) -> dict[str, bytes]:
        """Return the files of the output; an output that is not a folder has an empty name."""
        out = self.outputs / "out"
        if out.is_dir():
            files = (path for path in out.rglob("*") if path.is_file())
            return {str(path.relative_to(out)): path.read_bytes() for path in files}
        return {"": out.read_bytes()} if out.exists() else {}

    def _restore(self, *, is_old: bool) -> dict[str, bytes]:
        """Restore the folder to its state before the command; with an old output if `is_old`."""
        shutil.rmtree(self.outputs)
        self.outputs.mkdir()
        if is_old:
            old = self.outputs / "out"
            if self.is_folder:
                old.mkdir()
                old = old / next(iter(self.whole))
            old.write_bytes(_OLD)
        return self._state()

    def run(self, number: int, after: float, *, is_old: bool) -> list[str]:
        """Send a signal `after` a part of the command's time; return faults."""
        before = self._restore(is_old=is_old)
        with subprocess.Popen(
            *(self.command,), cwd=self.folder / "in", env=self.environment, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            time.sleep(self.seconds * after)
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
        return self._judge(number, process.returncode, errors, before)

    def _judge(self, number: int, status: int, errors: str, before: dict[str, bytes]) -> list[str]:
        wrong = []
        if status == 128 + number:
            line = f"offload-tool: ended by {signal.Signals(number).name}; outputs are whole, "
            if errors != line + "or what they were\n":
                wrong.append(f"errors {errors!r}")
        elif status not in (0, -number) and "KeyboardInterrupt" not in errors:  # Python's own start
            wrong.append(f"status {status}: {errors!r}")
        left = self._litter()
        state = {
            name: data for name, data in self._state().items() if not name.startswith(".offload-")
        }
        if number != signal.SIGKILL:
            if left:
                wrong.append(f"left {left}")
            if state not in (before, self.whole, before | self.whole):
                wrong.append(f"partial: {sorted(state)}")
        else:
            parts = (
                data in (before.get(name), self.whole.get(name)) for name, data in state.items()
            )
            if not all(parts) or not before.keys() <= state.keys() | ({""} if left else set()):
                wrong.append(f"partial: {sorted(state)}, left {left}")
            self.finish()
            if litter := [name for name in self._litter() if not self._is_whole(name)]:
                wrong.append(f"the next run left {litter}")
            if self._state() not in (self.whole, before | self.whole):
                wrong.append("the next run's output is another")
        return wrong

    def _is_whole(self, name: str) -> bool:
        """Return whether a file is the output just before its rename."""
        path = self.outputs / name
        has_name = name.startswith(".out.") and name.endswith(".tmp") and path.is_file()
        return has_name and path.read_bytes() in self.whole.values()

    def _litter(self) -> list[str]:
        """Return the files that are neither the output nor a cache."""
        found = [name for name in self._names() if name != "out" and name not in self.beside]
        if self.is_folder and (self.outputs / "out").is_dir():
            names = (path.name for path in (self.outputs / "out").iterdir())
            found += [
                name for name in names if name[0] == "." and name not in {*self.whole, ".kpack"}
            ]
        temporary = (path.name for path in (self.folder / "tmp").iterdir())
        return sorted(found + [name for name in temporary if not name.startswith(_NOT_OURS)])


@contextmanager
def a_trial(name: str) -> Iterator[Trial]:
    """Yield the trial of a command, in a folder that is removed after the block."""
    with tempfile.TemporaryDirectory(prefix="killing-") as folder:
        yield Trial(name, Path(folder))
