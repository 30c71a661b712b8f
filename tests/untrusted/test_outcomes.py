"""Every end of a command: one line, a documented status, and outputs complete or unchanged."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from offload_tool.cli import main
from offload_tool.errors import FileError, UsageError
from offload_tool.formats.bitcode.bitstream import Bits, top_blocks
from offload_tool.io import replace_all, replace_file
from offload_tool.util.escape import one_line, printable
from tests.conftest import ROOT, Capture, Tool, try_tool
from tests.fuzz.seeds import GFX90A, GFX906, HERE, HOST, archive, bundle
from tests.untrusted.killing import SIGNALS, VICTIMS, a_trial

TOOL = [sys.executable, "-m", "offload_tool"]
BUNDLE = bundle({HOST: b"", GFX906: b"image", GFX90A: os.urandom(3 << 20)})


def shell(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell command line, with ``$T`` for the tool."""
    environment = os.environ | {"T": " ".join(TOOL)}
    return try_tool("sh", "-c", text, cwd=folder, env=environment)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b").write_bytes(BUNDLE)
    (tmp_path / "in" / "a.a").write_bytes(archive({b"m": BUNDLE}))
    return tmp_path / "in"


@pytest.mark.parametrize("args", ["list b", "--help", "match b gfx906", "bundler --version"])
@pytest.mark.parametrize("stream", [">&-", ">/dev/full"])
def test_standard_output_that_cannot_be_written(folder: Path, args: str, stream: str) -> None:
    done = shell(f"$T {args} {stream}", folder)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "standard output: " in done.stderr


@pytest.mark.parametrize("streams", [">&-", ">/dev/full", "2>&-", ">&- 2>&-", "<&-"])
def test_commands_that_print_nothing(folder: Path, streams: str) -> None:
    """A command without output needs no streams, and no file gets a closed stream's descriptor."""
    done = shell(f"$T archive -o out.a b {streams}", folder)
    assert (done.returncode, done.stderr) == (0, "")
    before = (folder / "out.a").read_bytes()
    assert shell("$T archive -o out.a b", folder).returncode == 0
    assert (folder / "out.a").read_bytes() == before


@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full"])
def test_errors_that_cannot_be_said(folder: Path, stream: str) -> None:
    """If standard error is not writable, the status stays: 1 for an error, 0 for success."""
    assert shell(f"$T list none {stream}", folder).returncode == 1
    assert shell(f"$T extract b --target gfx906 -o out {stream}", folder).returncode == 0


@pytest.mark.parametrize(
    "args", ["doctor", "why k.o", "compile {0}/k.hip --target-id gfx906 -o {0}/k"]
)
def test_removed_folder(folder: Path, args: str) -> None:
    (folder / "k.hip").touch()
    args = args.format(folder)
    done = shell(f"mkdir gone; cd gone; rmdir ../gone; exec $T {args}", folder)
    text = "'.': the current folder was removed; change to another"
    assert (done.returncode, done.stderr) == (1, f"offload-tool: error: {text}\n")


HOSTILE = "a\n::error::forged\x1b[31m\x9b2J\u202e\u2028.o"


@pytest.mark.parametrize(
    "args",
    [
        *(("list",), ("extract", "-o", "out"), ("thin", "--keep", "gfx906", "-o", "out")),
        *(
            ("archive", "-o", "out"),
            ("merge", "-o", "out", "b"),
            ("embed", "--cuid", "x", "-o", "o"),
        ),
        *(("packager",), ("wrapper", "--kind=hip", "-o", "out"), ("match", "b", "gfx906", "--x")),
        ("compile", "--host", "--kind", "hip", "-o", "out"),
        ("bundler", "-type=o", "-list", "-input"),
    ],
    ids=lambda args: args[0],
)
@pytest.mark.parametrize("there", [True, False])
def test_messages_are_lines(folder: Path, args: tuple[str, ...], there: bool) -> None:
    """Line breaks, escape sequences and bidi controls in names do not reach a stream."""
    if there:
        (folder / HOSTILE).write_bytes(bundle({HOSTILE.encode(): b"x"})[:-1])
    done = subprocess.run([*TOOL, *args, HOSTILE], cwd=folder, capture_output=True, check=False)
    for text in (done.stdout, done.stderr):
        assert b"\n::error::" not in text
        assert b"\x1b" not in text
        assert "\x9b".encode() not in text
        assert "\u202e".encode() not in text
    assert there or done.stderr.count(b"\n") >= 1


def test_escapes() -> None:
    """Control characters are escaped; bytes of names that are not UTF-8 stay, except C1."""
    assert one_line("a\n\x1b\x9b\u202eä") == "a\\n\\x1b\\x9b\\u202eä"
    assert one_line("\udcff\udc9b") == "\udcff\\x9b"
    assert printable("\udcff") == "\\udcff"
    assert str(UsageError("a\nb")) == "a\\nb"


def test_a_line_break_in_a_triple(folder: Path, capsys: Capture) -> None:
    args = ["wrapper", "--kind=openmp", "--triple=x86_64\nevil", "-o", str(folder / "o.bc")]
    assert main([*args, str(folder / "b")]) == 1
    assert "not printable" in capsys.readouterr().err
    assert not (folder / "o.bc").exists()


def test_there_is_one_printer() -> None:
    for path in (ROOT / "offload_tool" / "cli").rglob("*.py"):
        for forbidden in ("sys.stdout.write", "sys.stderr.write", ".buffer", "file=sys."):
            assert forbidden not in path.read_text(), (path, forbidden)


def test_one_output_twice(folder: Path, capsys: Capture) -> None:
    (folder / "link").symlink_to("out")
    hip = [HOST.decode(), GFX906.decode()]
    args = ["bundler", "-type=bc", "-unbundle", f"-targets={','.join(hip)}"]
    args += [f"-input={folder / 'b'}", f"-output={folder / 'out'}", f"-output={folder / 'link'}"]
    assert main(args) == 1
    assert "are one output" in capsys.readouterr().err
    assert not (folder / "out").exists()
    with pytest.raises(UsageError), replace_all([folder / "x", f"{folder}/./x"]):
        pass
    name = str(folder / "x")
    with pytest.raises(UsageError), replace_all([name, name]):  # one object, as "x" literals are
        pass


def test_set_user_id_does_not_stay(tmp_path: Path) -> None:
    """New content never runs as another user."""
    path = tmp_path / "out"
    path.touch()
    path.chmod(0o6755)
    with replace_file(path) as out:
        out.write(b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_a_read_only_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(FileError, match="is read-only"), replace_file(path) as out:
        out.write(b"new")
    assert path.read_bytes() == b"old"


def test_a_loop_of_links(folder: Path, capsys: Capture) -> None:
    (folder / "loop").symlink_to("loop")
    assert main(["archive", "-o", str(folder / "loop"), str(folder / "b")]) == 1
    assert "symbolic links" in capsys.readouterr().err
    assert (folder / "loop").is_symlink()


def test_truncated_bitcode(tmp_path: Path, capsys: Capture) -> None:
    data = (HERE / "seeds" / "module.bc").read_bytes()
    for size in (4, 8, 100, 500, 1500, len(data) - 12):
        (tmp_path / "x.bc").write_bytes(data[:size])
        assert main(["packager", str(tmp_path / "x.bc")]) == 1
        assert "broken bitcode" in capsys.readouterr().err


@pytest.mark.llvm
def test_bitcode_cut_between_blocks(tmp_path: Path, llvm: Tool, capsys: Capture) -> None:
    """If only whole blocks are missing, the packager rejects the same files as LLVM's."""
    data = (HERE / "seeds" / "module.bc").read_bytes()
    blocks = list(top_blocks(Bits(memoryview(data), 32, 8 * len(data))))
    assert [block.number for block in blocks] == [13, 8, 23]
    path = tmp_path / "x.bc"
    for block in blocks:
        for padding in (0, 4):
            path.write_bytes(data[: 4 * (block.content_at + block.size)] + bytes(padding))
            theirs = try_tool(llvm("llvm-offload-binary"), path)
            assert main(["packager", str(path)]) == theirs.returncode
            assert ("cut short" in capsys.readouterr().err) == bool(theirs.returncode)
    assert theirs.returncode == 0


@pytest.mark.parametrize("size", [0, 5000, 3_999_999])
@pytest.mark.parametrize("at", ["while it is read", "before the output is complete"])
def test_an_input_is_cut_while_it_is_mapped(tmp_path: Path, size: int, at: str) -> None:
    """No output is completed: an error names the file, or SIGBUS ends the process."""
    script = f"""
        import os, sys
        from offload_tool.errors import FileError
        from offload_tool.io import InputFile, replace_file
        try:
            with InputFile("in") as source, replace_file("out") as out:
                data = source.data
                if {at!r} == "while it is read":
                    os.truncate("in", {size})
                out.write(bytes(data[3_000_000:]))
                os.truncate("in", {size})
        except FileError as error:
            print(error)
    """
    (tmp_path / "in").write_bytes(bytes(4_000_000))
    done = try_tool(
        sys.executable, "-c", "\n".join(line[8:] for line in script.splitlines()), cwd=tmp_path
    )
    if done.returncode == -signal.SIGBUS:
        assert at == "while it is read"
    else:
        assert done.stdout == "'in': became shorter while it was read; try again\n", done
        assert done.returncode == 0
    assert not (tmp_path / "out").exists()


def test_an_input_is_cut_while_a_command_runs(folder: Path) -> None:
    """At any moment, the command ends with an error line, or as LLVM's would."""
    data = b"".join(bundle({GFX906: bytes([n]) * 100_000}) for n in range(60))
    for step in range(12):
        (folder / "x").write_bytes(data)
        with subprocess.Popen([*TOOL, "list", "x"], cwd=folder, stderr=subprocess.PIPE,
                              stdout=subprocess.DEVNULL) as process:  # fmt: skip
            time.sleep(0.03 * step)
            os.truncate(folder / "x", 400_000 + step)
            _, output = process.communicate(timeout=60)
        assert process.returncode in (0, 1, -signal.SIGBUS), output
        assert output.count(b"\n") == max(process.returncode, 0)


@pytest.mark.parametrize("name", sorted(VICTIMS))
def test_whenever_a_command_is_ended(name: str) -> None:
    """The output is complete or unchanged, without leftovers (with SIGKILL: after the next run).

    `OFFLOAD_TEST_KILLS` is a number of random moments for each signal.
    """
    kills = int(os.environ.get("OFFLOAD_TEST_KILLS", 0))
    moments = [random.uniform(0, 1.05) for _ in range(kills)] or [0.5, 0.7, 0.85]
    with a_trial(name) as trial:
        for number in SIGNALS:
            for step, moment in enumerate(moments):
                assert trial.run(number, moment, is_old=step % 2 == 0) == []


def test_no_memory(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Errors that no command catches are one line: out of memory, too deep, unexpected ones."""
    for error, output in (
        (MemoryError(), "more memory than there is"),
        (RecursionError(), "nested too deep"),
        (KeyError("x"), "KeyError: 'x'; unexpected error"),
    ):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("offload_tool.operations.match.match_images", fail)
        assert main(["match", str(folder / "b"), "gfx906"]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert output in lines[0]


def test_a_signal_while_a_class_is_made() -> None:
    """A signal that Python wraps in another error still counts as a signal."""
    program = (
        "import os, signal, sys\n"
        "from offload_tool.cli._main import guarded\n"
        "class Slow:\n"
        "    def __set_name__(self, owner, name):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(guarded(lambda: len(type('Made', (), {'x': Slow()}).__name__)))\n"
    )
    done = try_tool(sys.executable, "-c", program)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == "offload-tool: ended by SIGINT; outputs are whole, or what they were\n"
