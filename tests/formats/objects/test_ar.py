"""Archives: written as LLVM does, read in every dialect and without trust."""

from __future__ import annotations

import os
import random
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offload_tool.errors import FormatError, UnsupportedError, UsageError
from offload_tool.formats.objects.ar import (
    ArchiveReader,
    GrowingArchive,
    NewMember,
    member_symbols,
    plan_archive,
)
from offload_tool.io import InputFile, replace_file
from offload_tool.io.write_plan import FilePlan
from tests.conftest import Tool, missing, program, run_tool
from tests.formats.object_files import member_header as header

Contents = list[tuple[str, bytes]]
LONG = "x" * 98 + ".o"


def archive_of(contents: Contents, *, wide_offset: int = 1 << 32) -> bytes:
    """Write what `plan_archive` says, and check that it keeps its word."""
    members = [NewMember(name, data, member_symbols(memoryview(data))) for name, data in contents]
    with patch("offload_tool.formats.objects.ar._WIDE_OFFSET", wide_offset):
        plan = plan_archive(members)
        out = b"".join(plan.chunks())
        assert len(out) == plan.size
    return out


def read(data: bytes, path: Path | None = None) -> Contents:
    view = memoryview(data)
    return [
        (
            member.name,
            bytes(member.content(view)) if member.path is None else member.path.read_bytes(),
        )
        for member in ArchiveReader(view, path=path)
    ]


@given(
    contents=st.lists(
        st.tuples(
            st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=40)
            .filter(lambda name: not name.endswith("/"))
            .filter(lambda name: name[0] not in "/#" and not name.startswith("__.")),
            st.binary(max_size=40).map(lambda data: b"text" + data),
        ),
        max_size=12,
    )
)
@example([("\udcff\udcfe.o", b""), ("ä" * 8, b"")])
def test_round_trip(contents: Contents) -> None:
    """Any names and contents are read as they were written, names that are no text, too."""
    assert read(archive_of(contents)) == contents


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (NewMember("", b""), "is empty"),
        (NewMember("a\nb", b""), "a line end"),
        (NewMember("a\0b", b""), "NUL"),
        (NewMember("a", FilePlan((), 10**10)), "has 10000000000 bytes"),
        (NewMember("a", FilePlan((), -1)), "has -1 bytes"),
    ],
    ids=["empty", "line-end", "nul", "too-large", "negative"],
)
def test_members_that_cannot_be_written(member: NewMember, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_archive([member])


@pytest.mark.parametrize("seed", range(6))
def test_members_added_one_by_one(tmp_path: Path, seed: int) -> None:
    """The bytes are those of a plan, wherever contents are and however large they are."""
    chance = random.Random(seed)
    (tmp_path / "a").write_bytes(chance.randbytes(900_000))
    with InputFile(tmp_path / "a") as first, InputFile(tmp_path / "a") as other:
        in_memory = InputFile.from_data("m", memoryview(chance.randbytes(50_000)))
        growing, members = GrowingArchive(), []
        at = 0
        for number in range(chance.choice([0, 1, 400])):
            source = chance.choice([first, first, first, first, other, in_memory])
            size = chance.choice([0, 1, 16, chance.randrange(3000), (1 << 16) + number % 2])
            at = (at + chance.choice([0, 60, 5000, 300_000])) % (len(source) - size + 1)
            if size > len(source):
                continue
            name = chance.choice([f"m{number}", "m", LONG, f"{number}{LONG}"])
            symbols = chance.choice([None, None, b"", b"f\0g\0"]) if seed % 2 else None
            growing.add(name.encode(), source, at, size, symbols)
            members.append(NewMember(name, bytes(source.data[at : at + size]), symbols))
            at += size
        plan = plan_archive(members)
        assert (growing.size, len(growing)) == (plan.size, len(members))
        with replace_file(tmp_path / "out") as out:
            growing.write_to(out)
    assert (tmp_path / "out").read_bytes() == b"".join(plan.chunks())


def test_offsets_of_64_bits() -> None:
    """From 4 GiB on the index has 64 bits, up to the largest member that a header can hold."""
    front = 8 + 60 + 4 + 4 + 4  # magic, index with one symbol
    last = NewMember("b", b"", b"ab\0")

    def head(size: int) -> bytes:
        return bytes(next(plan_archive([NewMember("big", FilePlan((), size)), last]).chunks()))

    narrow = head((1 << 32) - front - 60 - 2)
    assert narrow[8:10] == b"/ "
    assert int.from_bytes(narrow[72:76], "big") == (1 << 32) - 2
    assert head((1 << 32) - front - 60)[8:16] == b"/SYM64/ "
    limit = head(10**10 - 1)
    assert int.from_bytes(limit[76:84], "big") == len(limit) + 10**10


C_SOURCE = """
int und(void); int gv = 1; static int sv; int f(void) {return und() + sv++;}
__attribute__((weak)) int wk(void) {return 1;} extern int al(void) __attribute__((alias("f")));
static void *res(void) {return (void *)f;} int ifn(void) __attribute__((ifunc("res")));
"""


@pytest.fixture(scope="module")
def objects(llvm: Tool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the contents that members can have, by kind."""
    folder = tmp_path_factory.mktemp("objects")
    (folder / "a.c").write_text(C_SOURCE, encoding="utf-8")
    (folder / "none.c").write_text("", encoding="utf-8")
    host, device = "--target=x86_64-unknown-linux-gnu", "--target=amdgcn-amd-amdhsa"
    made = {
        "elf": (host, "a.c"),
        "bitcode": (host, "a.c", "-emit-llvm"),
        "device": (device, "none.c", "-emit-llvm", "-nogpulib"),
        "coff": ("--target=x86_64-pc-windows-msvc", "none.c"),
    }
    for name, (target, source, *flags) in made.items():
        run_tool(llvm("clang"), target, "-c", folder / source, *flags, "-o", folder / name)
    contents = {name: (folder / name).read_bytes() for name in made}
    return contents | {"text": b"odd", "even": b"even", "empty": b"", "zeros": bytes(64)}


SHAPES: dict[str, list[tuple[str, str]]] = {
    "elf": [("a.o", "elf")],
    "bitcode": [("a.bc", "bitcode")],
    "no-symbols": [("a.bc", "device")],
    "no-symbols-and-text": [("t", "text"), ("a.o", "coff"), ("b", "text")],
    "zeros": [("z", "zeros")],
    "no-object": [("t", "text"), ("e", "even")],
    "15-bytes": [("a" * 15, "elf"), ("b", "text")],
    "16-bytes": [("a" * 16, "elf"), ("b", "text")],
    "100-bytes": [(LONG, "bitcode")],
    "odd-long-names": [("a" * 17, "elf"), ("b" * 19, "text"), ("c" * 20, "empty")],
    "equal-names": [("a.o", "elf"), ("a.o", "bitcode"), (LONG, "text"), (LONG, "elf")],
    "empty-members": [("a", "empty"), ("b", "empty"), ("c.o", "elf"), ("d", "empty")],
    "not-ascii": [("äöü.o", "elf"), ("ß" * 9, "bitcode")],
    "spaces": [("a b.o", "elf"), (" a ", "text")],
    "all": [(f"member-{kind}-{LONG[:odd]}", kind) for kind in
            ("text", "elf", "empty", "bitcode", "device", "coff", "even", "zeros")
            for odd in range(6)],
}  # fmt: skip


@pytest.fixture
def contents(objects: dict[str, bytes], shape: str) -> Contents:
    return [(name, objects[kind]) for name, kind in SHAPES[shape]]


def lay_out(contents: Contents, folder: Path) -> list[Path]:
    """Write each content to a file of its name, in a folder of its own."""
    paths = []
    for number, (name, data) in enumerate(contents):
        path = folder / str(number) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        paths.append(path)
    return paths


@pytest.mark.llvm
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wide", [False, True], ids=["32", "64"])
def test_same_bytes_as_llvm_ar(contents: Contents, wide: bool, llvm: Tool, tmp_path: Path) -> None:
    expected = tmp_path / "expected.a"
    limit = 200 if wide else 1 << 32
    run_tool(
        llvm("llvm-ar"), "qcsD", "--format=gnu", expected, *lay_out(contents, tmp_path),
        env={**os.environ, "SYM64_THRESHOLD": str(limit)},
    )  # fmt: skip
    assert archive_of(contents, wide_offset=limit) == expected.read_bytes()


@pytest.mark.llvm
def test_where_the_index_becomes_wide(
    objects: dict[str, bytes], llvm: Tool, tmp_path: Path
) -> None:
    """The last member's offset with the narrow index decides, as in llvm-ar."""
    widths = set()
    for size in range(1780, 1900, 2):
        contents = [("filler", b"x" * size), ("a.o", objects["elf"])]
        expected = tmp_path / "expected.a"
        expected.unlink(missing_ok=True)
        environment = {**os.environ, "SYM64_THRESHOLD": "2048"}
        paths = lay_out(contents, tmp_path)
        run_tool(llvm("llvm-ar"), "qcsD", "--format=gnu", expected, *paths, env=environment)
        assert archive_of(contents, wide_offset=2048) == expected.read_bytes()
        widths.add(expected.read_bytes()[8:16])
    assert widths == {b"/       ", b"/SYM64/ "}


@pytest.fixture
def gnu_ar() -> str:
    found = program("ar")
    if "GNU" not in run_tool(found, "--version"):
        missing("GNU ar")
    return found


@pytest.mark.llvm
@pytest.mark.parametrize("shape", ["all", "equal-names", "15-bytes", "16-bytes"])
def test_gnu_ar_archives(contents: Contents, gnu_ar: str, tmp_path: Path) -> None:
    """What GNU ar writes is read, with real dates and owners as well."""
    for flags in ("qcsD", "qcsU", "qcS"):
        made = tmp_path / f"{flags}.a"
        run_tool(gnu_ar, flags, made, *lay_out(contents, tmp_path))
        assert read(made.read_bytes()) == contents


@pytest.mark.llvm
@pytest.mark.parametrize("tool", ["llvm-ar", "gnu"])
def test_thin_archives(
    tool: str, objects: dict[str, bytes], llvm: Tool, gnu_ar: str, tmp_path: Path
) -> None:
    folder = tmp_path / "lib"
    contents = [("a.o", objects["elf"]), (LONG, objects["text"]), ("b", objects["empty"])]
    paths = lay_out(contents, folder)
    command = gnu_ar if tool == "gnu" else llvm(tool)
    names = [str(path.relative_to(folder)) for path in paths]
    run_tool(command, "qcsDT", "made.a", *names, cwd=folder)
    made = folder / "made.a"
    members = list(ArchiveReader(memoryview(made.read_bytes()), path=made))
    assert [member.name for member in members] == names
    assert [member.path for member in members] == paths
    assert [(member.offset, member.size) for member in members] == [
        (0, len(data)) for _, data in contents
    ]


def test_thin_archive_of_an_archive_with_an_odd_name() -> None:
    header = b"/0:\xe0\xff".ljust(48) + b"4".ljust(10) + b"`\n"
    with pytest.raises(UnsupportedError, match="a member of another archive") as caught:
        read(b"!<thin>\n" + header)
    shown = repr(r"/0:\xe0\xff")
    assert f"another archive ({shown})" in str(caught.value)
    assert f"member 1 ({shown})" in str(caught.value)


def test_thin_archive_in_memory() -> None:
    """Without the archive's path, members are relative to the current folder."""
    data = b"!<thin>\n" + header(b"//", 6) + b"a/b/\n\n" + header(b"/0", 99) + header(b"/0", 5)
    members = list(ArchiveReader(memoryview(data)))
    assert [(member.name, member.path, member.size) for member in members] == [
        ("a/b", Path("a/b"), 99),
        ("a/b", Path("a/b"), 5),
    ]


@pytest.fixture
def import_library(llvm: Tool, tmp_path: Path) -> bytes:
    (tmp_path / "some.def").write_text("LIBRARY some.dll\nEXPORTS\n a\n b\n", encoding="utf-8")
    made = tmp_path / "some.lib"
    run_tool(llvm("llvm-dlltool"), "-m", "i386:x86-64", "-d", tmp_path / "some.def", "-l", made)
    return made.read_bytes()


@pytest.mark.llvm
def test_import_library(import_library: bytes) -> None:
    with pytest.raises(UnsupportedError, match=r"import library of 'some.dll'.*give the static"):
        read(import_library)


@pytest.mark.llvm
def test_imports_in_a_static_library(
    import_library: bytes, llvm: Tool, objects: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "dll.lib").write_bytes(import_library)
    (tmp_path / "own.obj").write_bytes(objects["coff"])
    made = tmp_path / "merged.lib"
    run_tool(llvm("llvm-lib"), f"/out:{made}", tmp_path / "dll.lib", tmp_path / "own.obj")
    found = read(made.read_bytes())
    assert len(found) == 6
    assert objects["coff"] in [data for _, data in found]


def with_table(table: bytes, name: bytes, magic: bytes = b"!<arch>\n") -> bytes:
    return magic + header(b"//", len(table)) + table + header(name, 0)


A = header(b"a/", 2) + b"aa"
CORRUPT = {
    "no-archive": (b"\x7fELF", 0, "expected an archive, found"),
    "empty": (b"", 0, "expected an archive, found b''"),
    "header-cut": (b"!<arch>\n" + A[:59], 8, "expected 60 bytes, found 59"),
    "rest-after-members": (b"!<arch>\n" + A + b"\n", 70, "header of member 2: expected 60 bytes"),
    "terminator": (
        b"!<arch>\n" + A + header(b"b/", 0, terminator=b"`\r"),
        70 + 58,
        r"terminator of member 2 \('b'\): expected",
    ),
    "size-not-a-number": (b"!<arch>\n" + header(b"a/", b"0x10"), 56, r"size of member 1 \('a'\)"),
    "size-blank": (b"!<arch>\n" + header(b"a/", b""), 56, "expected a decimal number"),
    "size-negative": (b"!<arch>\n" + header(b"a/", b"-1"), 56, "found b'-1"),
    "size-too-large": (b"!<arch>\n" + header(b"a/", 3) + b"aa", 56, "at most 2 .* found 3"),
    "size-of-the-last": (
        b"!<arch>\n" + A + header(b"b/", 9999999999),
        70 + 48,
        r"size of member 2 \('b'\).*found 9999999999",
    ),
    "size-of-the-index": (b"!<arch>\n" + header(b"/", 1), 56, "at most 0"),
    "size-of-the-long-names": (b"!<arch>\n" + header(b"//", 99) + A, 56, "at most 62"),
    "date": (b"!<arch>\n" + header(b"a/", 0, date=b"12h"), 24, "date of member 1.*decimal"),
    "user": (b"!<arch>\n" + header(b"a/", 0, user=b"root"), 36, "user of member 1"),
    "group": (b"!<arch>\n" + header(b"a/", 0, group=b"1 2"), 42, "group of member 1"),
    "mode": (b"!<arch>\n" + header(b"a/", 0, mode=b"0648"), 48, "mode of member 1.*octal"),
    "name-blank": (b"!<arch>\n" + header(b"", 0), 8, "found only spaces"),
    "no-long-names": (b"!<arch>\n" + header(b"/0", 0), 8, "but there is none"),
    "long-name-behind-end": (with_table(b"abc/\n\n", b"/6"), 74, "offset 6 of .* 6 bytes"),
    "long-name-not-ended": (with_table(b"abcdef", b"/0"), 74, "expected an ended name"),
    "long-name-without-slash": (with_table(b"abcde\n", b"/0"), 74, "expected an ended name"),
    "long-name-endless": (with_table(b"a" * 70000 + b"/\n", b"/0"), 70070, "an ended name"),
    "long-name-no-number": (with_table(b"abc/\n\n", b"/1x"), 74, "found b'1x'"),
    "long-name-huge-number": (with_table(b"abc/\n\n", b"/99999999999999"), 74, "an ended name"),
    "two-long-name-tables": (
        b"!<arch>\n" + header(b"//", 0) + header(b"//", 0), 68, "one long-name table"
    ),
    "index-behind-members": (b"!<arch>\n" + A + header(b"/", 0), 70, "before the members"),
    "bsd-name-too-long": (b"!<arch>\n" + header(b"#1/3", 2) + b"aa", 8, "at most 2 bytes"),
    "bsd-name-no-number": (b"!<arch>\n" + header(b"#1/x", 2) + b"aa", 8, "after b'#1/'"),
    "thin-nul": (with_table(b"a\0b/\n\n", b"/1", b"!<thin>\n"), 74, "expected the path"),
    "thin-index-size": (b"!<thin>\n" + header(b"/", 1), 56, "at most 0"),
    "thin-no-member": (
        with_table(b"in.a/\n", b"/0:142", b"!<thin>\n"), 74, "put that archive's members in"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "offset", "message"), CORRUPT.values(), ids=CORRUPT.keys())
def test_corrupt_archives(data: bytes, offset: int, message: str) -> None:
    error = UnsupportedError if message.startswith("put that") else FormatError
    with pytest.raises(error, match=message) as caught:
        list(ArchiveReader(memoryview(data), path="broken.a"))
    assert str(caught.value).startswith(f"'broken.a', offset {offset:#x}")
    assert caught.value.offset == offset


def test_members_before_a_corrupt_one() -> None:
    members = iter(ArchiveReader(memoryview(b"!<arch>\n" + A + b"junk")))
    assert next(members).name == "a"
    with pytest.raises(FormatError, match="header of member 2"):
        next(members)


READABLE = {
    "last-padding-missing": (b"!<arch>\n" + header(b"a/", 1) + b"a", [("a", b"a")]),
    "coff-attributes": (
        b"!<arch>\n" + header(b"a/", 1, date=b"-1", user=b"", group=b"", mode=b"0") + b"a\n",
        [("a", b"a")],
    ),
    "bsd-short": (b"!<arch>\n" + header(b"name of 16 bytes", 1) + b"a\n", [(
        "name of 16 bytes", b"a")]),
    "bsd-symbols": (
        b"!<arch>\n" + header(b"__.SYMDEF SORTED", 4) + bytes(4) + header(b"a", 1) + b"a\n",
        [("a", b"a")],
    ),
    "named-like-a-bsd-name": (b"!<arch>\n" + header(b"#1/", 1) + b"a\n", [("#1", b"a")]),
    "named-like-bsd-symbols": (
        b"!<arch>\n" + header(b"/", 4) + bytes(4) + header(b"__.SYMDEF/", 1) + b"a\n",
        [("__.SYMDEF", b"a")],
    ),
    "coff-tables": (
        b"!<arch>\n" + header(b"/", 0) * 2 + header(b"//", 4) + b"abc\0"
        + header(b"/<HYBRIDMAP>/", 2)
        + b".." + header(b"/1", 0), [("bc", b"")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), READABLE.values(), ids=READABLE.keys())
def test_unusual_archives(data: bytes, expected: Contents) -> None:
    assert read(data) == expected


SMALL: Contents = [("a.o", b"aa"), (LONG, b"odd"), ("b.o", b""), ("c.o", b"\n")]
