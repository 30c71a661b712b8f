"""Resource limits of a run: decompression bombs are rejected early, and valid files pass."""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.errors import LimitError, UsageError
from offload_tool.io import InputFile, replace_file
from offload_tool.io.limits import Budget, Limits, effective_budget, limited
from tests.conftest import Capture, try_tool
from tests.formats.compressed import compressed, repeated
from tests.formats.object_files import make_elf
from tests.fuzz.seeds import GFX906, bundle, zipped
from tests.untrusted.small_files import CASES, shared_bundle

BLOCK = 1 << 17


def bomb(size: int) -> bytes:
    """Return a compressed bundle of that many bytes, a few thousand compressed."""
    blocks = size // BLOCK
    return compressed(b"", size=blocks * BLOCK, payload=repeated(b"\0", blocks), digest=bytes(8))


def test_many_bombs_are_one_bomb(tmp_path: Path, capsys: Capture) -> None:
    """The limit applies to the run: a zip file of bombs unpacks no more than one bomb could."""
    one = bomb(600 << 20)
    (tmp_path / "x.zip").write_bytes(zipped({str(n): one for n in range(9)}))
    found = Budget(Limits(unpacked=700 << 20))
    from offload_tool.operations.list_images import iter_images

    problems: list[Exception] = []
    with limited(found):
        assert list(iter_images(tmp_path / "x.zip", skipped=problems.append)) == []
    assert len(problems) == 9
    assert sum(isinstance(problem, LimitError) for problem in problems) == 8


def test_what_one_file_brings_is_its_own(tmp_path: Path) -> None:
    """A file may unpack to 100 times its size, whatever earlier files have used."""
    limits = Budget(Limits(unpacked=1000))
    limits.add_input(50)
    limits.unpack(5500)
    limits.next_file()
    limits.add_input(10)
    limits.unpack(1500)
    with pytest.raises(LimitError, match="needs 1 bytes, and 0 are left"):
        limits.unpack(1)


def test_a_real_wheel_passes() -> None:
    """A wheel of 5 GB with 10 GB of libraries, and 60 GB in them, is within the limits."""
    limits = Budget()
    limits.add_input(5 << 30)
    limits.unpack(10 << 30)
    limits.unpack(60 << 30)
    limits.member(count=20_000)
    limits.write(70 << 30)


def test_each_call_alone_without_a_run() -> None:
    """Without limits for a run, a program can unpack repeatedly, each time by its payload."""
    for _ in range(3):
        effective_budget(1000).unpack(1 << 30)
    with pytest.raises(LimitError):
        effective_budget(1000).unpack((1 << 30) + 100_001)


def test_a_huge_bss(tmp_path: Path, capsys: Capture) -> None:
    """Bytes written because of an object's numbers, beyond its content, are limited."""
    data = bytearray(make_elf(extra={b".hip_fatbin": bundle({GFX906: b"i"}), b".pad": b"x"}))
    table = struct.unpack_from("<Q", data, 40)[0]
    row = table + 64 * 6
    struct.pack_into("<Q", data, row + 48, 1 << 31)  # sh_addralign
    (tmp_path / "x.o").write_bytes(data)
    (tmp_path / "y").write_bytes(bundle({b"host-x86_64-unknown-linux-gnu-": b""}))
    targets = "-targets=host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx90a"
    files = [
        f"-input={tmp_path / 'x.o'}",
        f"-input={tmp_path / 'y'}",
        f"-output={tmp_path / 'out'}",
    ]
    assert main(["bundler", "-type=o", targets, *files]) == 1
    assert "OFFLOAD_MAX_WRITTEN" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_overlapping_images(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle whose entries share the same bytes is not written a thousand times."""
    (tmp_path / "x").write_bytes(shared_bundle(1000, os.urandom(3 << 20)))
    monkeypatch.setenv("OFFLOAD_MAX_WRITTEN", "50M")
    assert main(["extract", str(tmp_path / "x"), "-o", str(tmp_path / "out")]) == 1
    assert "bytes to write beyond 16 times" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("12", 12), ("3K", 3072), ("2 GiB", 2 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert Limits.of({"OFFLOAD_MAX_UNPACKED": text}).unpacked == size
    for wrong in ("x", "-1", "1.5G", "1E", "G"):
        with pytest.raises(UsageError, match=r"^OFFLOAD_MAX_WRITTEN: "):
            Limits.of({"OFFLOAD_MAX_UNPACKED": text, "OFFLOAD_MAX_WRITTEN": wrong})


def test_a_wrong_size_is_a_message(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFLOAD_MAX_WRITTEN", "x")
    assert main(["list", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("offload-tool: error: OFFLOAD_MAX_WRITTEN: ")


def test_holes_bring_nothing(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        file.write(b"x")
        file.truncate(1 << 40)
    with limited(Budget()) as found, InputFile(tmp_path / "x"), pytest.raises(LimitError):
        found.unpack(2 << 30)


def test_long_tables_end(tmp_path: Path) -> None:
    """A table of 100,000 entries is printed in plain columns, in a few seconds."""
    names = [b"hip-amdgcn-amd-amdhsa--gfx906:%d" % n for n in range(100_000)]
    (tmp_path / "x").write_bytes(bundle(dict.fromkeys(names, b"")))
    started = time.monotonic()
    environment = os.environ | {"OFFLOAD_MAX_MEMBERS": "10000000"}
    done = try_tool(sys.executable, "-m", "offload_tool", "list", tmp_path / "x", env=environment)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) > 100_000
    assert time.monotonic() - started < 90  # 5 on an idle machine; rich needs more than 120


def test_a_pipe_is_bounded(tmp_path: Path) -> None:
    """Standard input is read up to the limit, as far as memory allows."""
    with Path("/dev/zero").open("rb") as zeros:
        environment = os.environ | {"OFFLOAD_MAX_UNPACKED": "20M"}
        command = (sys.executable, "-m", "offload_tool", "packager", "-")
        done = try_tool(*command, stdin=zeros, env=environment)
    assert done.returncode == 1
    assert "expected at most 20971520 bytes where there is no file" in done.stderr


def test_written_is_per_run(tmp_path: Path) -> None:
    """Outputs count together, including holes."""
    with limited(Budget(Limits(written=100))):
        with replace_file(tmp_path / "a") as out:
            out.pad_to(60)
        with pytest.raises(LimitError), replace_file(tmp_path / "b") as out:
            out.write(bytes(41))
    assert not (tmp_path / "b").exists()


# -- small files whose tables repeat the same bytes ----------------------------------------

SECONDS, MEGABYTES = 3, 200
# A child inherits this process's peak memory, so it imports nothing else.
_MEASURE = """
import os, resource, sys
child = os.fork()
if not child:
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    os.execv(sys.executable, [sys.executable, '-m', 'offload_tool', *sys.argv[1:]])
_, status, used = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss >> 10)
"""


@pytest.mark.parametrize("name", CASES)
def test_small_files_much_work(name: str, tmp_path: Path) -> None:
    """They do not cost much time or memory."""
    args, make, refused = CASES[name]
    assert sum((tmp_path / file).write_bytes(data) for file, data in make().items()) < 16 << 20
    done = try_tool(sys.executable, "-S", "-c", _MEASURE, *args.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    status, seconds, megabytes = done.stdout.splitlines()[-1].split()
    assert status in ("0", "1"), done.stderr
    assert float(seconds) < SECONDS
    assert int(megabytes) < MEGABYTES
    assert "unexpected error" not in done.stderr
    assert refused in done.stderr
