"""Where memory or open files are not enough, a command says that, whatever the error's form is."""

from __future__ import annotations

import errno
import hashlib
import importlib
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from offload_tool.errors import UsageError, shortage
from offload_tool.formats.bitcode import llvmlite
from offload_tool.formats.codec import BackgroundHash, ZstdStream
from offload_tool.io import InputFile
from tests.conftest import run_tool, try_tool

MEMORY, FILES = "this needs more memory than there is", "this needs more open files"
HOST, GPU = "host-x86_64-unknown-linux-gnu-", "hip-amdgcn-amd-amdhsa--gfx906"


def wrapped() -> Exception:
    """Return what llvmlite raises where its library cannot be mapped."""
    try:
        try:
            raise OSError("libllvmlite.so: failed to map segment from shared object")
        except OSError:
            raise OSError("Could not find/load shared object file")  # noqa: B904 - as it does
    except OSError as error:
        return error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), MEMORY),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), MEMORY),
        (ImportError("_ctypes.so: failed to map segment from shared object"), MEMORY),
        (RuntimeError("can't start new thread"), MEMORY),
        (zstandard.ZstdError("compress error: Allocation error : not enough memory"), MEMORY),
        (wrapped(), MEMORY),
        (OSError(errno.EMFILE, "Too many open files", "heapq.py"), FILES),
        (OSError(errno.ENFILE, "Too many open files in system"), FILES),
        (OSError(errno.ENOSPC, "No space left on device"), None),
        (ImportError("no such thing"), None),
        (RuntimeError("odd"), None),
    ],
    ids=repr,
)
def test_forms(error: Exception, line: str | None) -> None:
    """Python's, the kernel's, the loader's and libzstd's errors are known, and no others."""
    found = shortage(error)
    assert found == line or (line is not None and str(found).startswith(line))


def test_reasons_in_a_circle() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert shortage(one) is None


@pytest.fixture
def threadless(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.mark.usefixtures("threadless")
def test_hash_without_a_thread() -> None:
    """Where no thread can be started, the hash is computed all the same."""
    with BackgroundHash() as running:
        assert [bytes(c) for c in running.watch(map(memoryview, [b"ab", b"c"]))] == [b"ab", b"c"]
        running.update(b"d")
        assert running.digest() == hashlib.md5(b"abcd").digest()


def test_unpacking_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:

    class Poor:
        def __init__(self, **_: object) -> None:
            pass

        def stream_reader(self, *_: object, **__: object) -> Poor:
            return self

        def readinto(self, _: memoryview) -> int:
            raise zstandard.ZstdError("zstd decompress error: Allocation error : not enough memory")

    data = zstandard.ZstdCompressor().compress(b"data")
    stream = ZstdStream(memoryview(data), 0, len(data), None)
    monkeypatch.setattr(zstandard, "ZstdDecompressor", Poor)
    with pytest.raises(MemoryError):
        list(stream)


@pytest.mark.parametrize(
    ("error", "found", "message"),
    [
        (wrapped(), MemoryError, None),
        (ImportError("libz.so: failed to map segment from shared object"), MemoryError, None),
        (ModuleNotFoundError("llvmlite"), UsageError, "is not installed; pip install llvmlite"),
        (OSError("is damaged"), UsageError, "cannot be loaded: is damaged"),
    ],
    ids=repr,
)
def test_llvmlite_without_memory(
    error: Exception, found: type[Exception], message: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A llvmlite that cannot be mapped is not called missing, nor is one that is damaged."""

    def load(_: str) -> None:
        raise error

    llvmlite._load.cache_clear()
    monkeypatch.setattr(importlib, "import_module", load)
    with pytest.raises(found, match=message):
        llvmlite.assemble("")
    llvmlite._load.cache_clear()


def commands(folder: Path) -> Iterator[list[str]]:
    """Yield short commands that read two megabytes, and write them."""
    (folder / "empty").touch()
    (folder / "image").write_bytes(bytes(1 << 20) + bytes(range(256)) * (1 << 12))
    entries = [f"-targets={HOST},{GPU}", "-input=empty", "-input=image"]
    yield ["bundler", "-type=bc", "-compress", *entries, "-output=bundle"]
    yield ["bundler", "-type=bc", "-unbundle", f"-targets={GPU}", "-input=bundle", "-output=out"]
    yield ["wrapper", "--kind=hip", "-o", "out", "bundle"]


def test_little_memory(tmp_path: Path) -> None:
    """With little memory, a command does its work, or says that in one line, and writes nothing."""
    told = 0
    for args in commands(tmp_path):
        for mebibytes in (24, 36, 64):
            most = mebibytes << 20
            (tmp_path / "out").unlink(missing_ok=True)
            done = try_tool(
                *(sys.executable, "-m", "offload_tool", *args),
                cwd=tmp_path,
                preexec_fn=lambda most=most: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
            )
            if "site.py" in done.stderr or "Fatal Python error" in done.stderr:
                continue  # Python itself does not start with so little
            if done.returncode:
                told += 1
                assert len(done.stderr.splitlines()) == 1, (args, mebibytes, done.stderr)
                assert "memory" in done.stderr
                assert "foresaw" not in done.stderr
                assert not (tmp_path / "out").exists()
        if args[0] == "bundler" and "-compress" in args:  # the others need it
            run_tool(sys.executable, "-m", "offload_tool", *args, cwd=tmp_path)
    assert told
    with InputFile(tmp_path / "bundle") as bundle:
        assert bytes(bundle.data[:4]) == b"CCOB"
