"""``python -m tests.fuzz.guided``: readers of formats under Atheris, which goes where code is new.

Each input is a byte, which says the reader, and what it reads. A reader may raise this package's
errors and nothing else; a hang, or more memory than `_MEGABYTES`, is a finding, too. It begins with
the seeds and with the inputs in ``reached``, each of which led to code that no other did:
``--keep`` puts those of a run there. What is found goes to ``--found``, and the status is 1.
"""

# ruff: noqa: T201 - it prints what it does.

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).parent
REACHED = HERE / "reached"
_MEGABYTES, _SECONDS = 1024, 10
_LONGEST = 1 << 14
_CHECKSUM, _MOST_KEPT = 40, 64 << 10
"""Characters of the name of what libFuzzer keeps; bytes of what is put into the repository."""
Reader = Callable[[bytes], object]


def _readers() -> list[Reader]:
    """Import what is looked at, and return the readers; their order is part of the corpus."""
    from offload_tool.clang.depfile import parse_depfile
    from offload_tool.clang.response_file import _decoded, _split
    from offload_tool.containers.find import containers_in
    from offload_tool.formats.bitcode.module import find_embedded_objects
    from offload_tool.formats.kernel_info.reader import read_kernels
    from offload_tool.formats.kpack.archive import read_kpack
    from offload_tool.formats.kpack.marker import LinkedWrappers, read_marker
    from offload_tool.formats.objects.ar import member_symbols
    from offload_tool.formats.objects.elf.reader import read_elf_tables
    from offload_tool.formats.wheel import edited_record, header
    from offload_tool.io import InputFile
    from offload_tool.launch.jobserver import _make_flags

    def containers(data: bytes) -> None:
        for found in containers_in(InputFile.from_data("in", memoryview(data)), "in"):
            for image in found.images:
                image.content.begin(64)
                if not image.refusal(found.label):
                    image.content.view()

    def elf(data: bytes) -> None:
        tables = read_elf_tables(memoryview(data))
        list(tables.named_symbols())
        LinkedWrappers(tables)

    def record(data: bytes) -> None:
        edited_record(data, "a.dist-info/RECORD", {}, {}, ["a"], path="in")
        header(data, "Name", path="in")

    return [
        containers,
        elf,
        record,
        lambda data: list(read_kernels(memoryview(data), path="in")),
        lambda data: read_kpack(memoryview(data)),
        lambda data: read_marker(memoryview(data)),
        lambda data: member_symbols(memoryview(data), path="in"),
        lambda data: list(
            find_embedded_objects(
                memoryview(data), ".llvm.offloading", path="in", forget=lambda: None
            )
        ),
        lambda data: list(_split(_decoded(data))),
        lambda data: parse_depfile(data.decode("utf-8", "surrogateescape")),
        lambda data: _make_flags(data.decode("utf-8", "surrogateescape")),
    ]


def read(data: bytes, readers: list[Reader]) -> None:
    """Read one input, as a command does: with a budget of its own."""
    from offload_tool.errors import OffloadError
    from offload_tool.io.limits import Budget, limited

    if data:
        budget = Budget()
        budget.add_input(len(data))
        with suppress(OffloadError), limited(budget):
            readers[data[0] % len(readers)](data[1:])


def _fuzz(args: list[str]) -> None:
    """Run in this process, which libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["offload_tool"]):
        readers = _readers()
    atheris.Setup([sys.argv[0], *args], lambda data: read(data, readers))
    atheris.Fuzz()


def inputs(readers: list[Reader]) -> dict[str, bytes]:
    """Return what a run begins with, by names."""
    from tests.fuzz.seeds import make_seeds

    found = {path.name: path.read_bytes() for path in REACHED.glob("*")}
    for name, data in make_seeds().items():
        for number in range(len(readers)):
            if len(data) < _LONGEST:
                found[f"{name.replace(' ', '-')}-{number}"] = bytes([number]) + data
    return found


def _run(args: list[str]) -> str:
    command = [sys.executable, "-m", "tests.fuzz.guided", "--", *args]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = done.stdout.decode(errors="replace")
    if done.returncode:
        print(text[-6000:])
    return "" if done.returncode else text


def _keep(corpus: Path) -> None:
    """Put the smallest of what libFuzzer has added, under checksums, into reached."""
    new = [path for path in corpus.iterdir() if len(path.name) == _CHECKSUM]
    total = 0
    REACHED.mkdir(exist_ok=True)
    for path in sorted(new, key=lambda path: path.stat().st_size):
        total += path.stat().st_size
        if total > _MOST_KEPT:
            break
        (REACHED / path.name).write_bytes(path.read_bytes())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"))
    parser.add_argument("--keep", action="store_true", help="put what led to new code into reached")
    given = parser.parse_args()
    given.found.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="offload-fuzz-") as name:
        corpus = Path(name)
        for file, data in inputs(_readers()).items():
            (corpus / file).write_bytes(data)
        limits = [f"-rss_limit_mb={_MEGABYTES}", f"-timeout={_SECONDS}", f"-max_len={_LONGEST}"]
        prefix = f"-artifact_prefix={given.found}{os.sep}"
        text = _run([str(corpus), *limits, prefix, f"-max_total_time={given.seconds}"])
        if not text:
            return 1
        lines = [line for line in text.splitlines() if line.startswith(("#", "Done"))]
        print("\n".join([next((x for x in lines if "INITED" in x), ""), *lines[-1:]]))
        if given.keep:
            _keep(corpus)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--"]:
        _fuzz(sys.argv[2:])
    sys.exit(main())
