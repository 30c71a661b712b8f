"""Whether the output of a pass is current, and why it is not: one table for all that run passes.

The suites of nodes, of `offload-tool compile` and of `launch` show that each asks this engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from offload_tool.io.file_digests import DigestCache, digest_of
from offload_tool.manifest.key import Key, Part
from offload_tool.manifest.manifest import PassRecord
from offload_tool.manifest.pass_run import PassRun, Resolver
from tests.conftest import run_tool

MANIFEST = ".k.co.manifest"
INCLUDE = re.compile(r"(#include|__has_include\() ?([\"<])([\w./]+)")
GCC = "gcc/lib/gcc/x86_64-linux-gnu"
BEFORE = f"""
mkdir -p first second third real/deep {GCC}/11 gcc/include/c++/11
echo '#include "value.h"' >k.hip; echo '#include <lib.h>' >>k.hip
echo '// #if __has_include(<more.h>)' >>k.hip
echo one >second/value.h; echo lib >second/lib.h; echo words >words; echo x >real/x.h
cp real/x.h first/x.h; ln -s ../real/x.h first/link.h; ln -s real linked
"""


class Pass(Resolver):
    """A pass over ``k.hip``, with a model of a preprocessor.

    Of files that are one, it writes the text once, as by ``#pragma once``.
    """

    args: Sequence[str] = ()
    output = "k.co"
    is_recordable = True
    may_write = True

    def __init__(self) -> None:
        self.args = ["clang", "-c", "k.hip", "-Ifirst", "-Isecond", "-Ithird"]
        self.parts = dict.fromkeys((Part.COMPILER, Part.VARIABLES, Part.FOLDER), "1")
        self.named = ["words"]
        self.own_folders: Sequence[str] | None = ()
        """What the compiler adds to the folders of the flags; None if nobody knows the path."""
        self.sides: dict[str, bool] = {}
        """Further outputs, and whether they are of this pass alone."""
        self.preprocesses = True
        self.before = self.after = ""
        """What happens before the compiler reads files, and behind that."""
        self.is_judged = False
        """Also before the first run."""
        self.code = ""
        """The output, if it does not depend on the files."""
        self.queries: list[str] = []
        self._files: list[str] = []

    def key(self, record: PassRecord | None) -> Key:
        parts = {Part.COMMAND: json.dumps(self.args), **self.parts}
        return Key(parts, {name: DigestCache().digest(name) for name in self.named})

    def inputs_before(self) -> Iterable[str]:
        return ["k.hip", *self.named]

    def files_read(self) -> list[str]:
        return self._files

    def preprocess(self) -> list[str] | None:
        self.queries.append("preprocessor")
        return self._reads() if self.preprocesses else None

    def search_path(self) -> tuple[str, ...]:
        self.queries.append("search path")
        return () if self.own_folders is None else self._folders()

    def present_search_path(self, _record: PassRecord) -> tuple[str, ...]:
        return () if self.own_folders is None else self._folders()

    def side_outputs(self) -> dict[str, str]:
        return {n: DigestCache().digest(n) if is_own else "" for n, is_own in self.sides.items()}

    def compile(self, stages: Stages | None = None) -> PassRun:
        """Run the pass behind its verdict, as a new process does."""
        run = PassRun(self, DigestCache())
        if Path(MANIFEST).exists() or self.is_judged:
            run.is_current()
        run.begin("marker")
        shell(self.before)
        self._files = self._reads()
        made = [json.dumps([self.args, sorted(self.parts.items())])]
        once = {Path(name).stat().st_ino: name for name in [*self._files, *self.named]}
        made += [Path(name).read_text() for name in once.values()]
        shell(self.after)
        if stages is not None:
            run.begin_stages(stages)
        if stages is None or not stages.is_cut_off:
            Path(self.output).write_text(self.code or "\n".join(made))
        for name in self.sides:
            Path(name).write_text("beside")
        self.before = self.after = ""
        run.save(run.finish())
        return run

    def _folders(self) -> tuple[str, ...]:
        versions = sorted(each.name for each in Path(GCC).iterdir())
        headers = [f"{GCC}/{each}/../../../../include/c++/{each}" for each in versions[-1:]]
        flagged = [arg[2:] for arg in self.args if arg.startswith("-I")]
        return (*flagged, *(headers if self.own_folders else ()))

    def _reads(self) -> list[str]:
        found, waiting = dict[str, None](), ["k.hip"]
        while waiting:
            name = waiting.pop(0)
            found[name] = None
            for _, quote, wanted in INCLUDE.findall(Path(name).read_text()):
                beside = [str(Path(name).parent)] if quote == '"' else []
                places = (Path(each, wanted) for each in (*beside, *self._folders()))
                waiting += [str(place) for place in places if place.is_file()][:1]
        return [*found]


def shell(commands: str) -> None:
    run_tool("sh", "-ec", commands)


def sets(commands: str = "", **values: object) -> Callable[[Pass], None]:
    """Return a change of what a pass is made of, behind commands of the shell."""

    def change(one: Pass) -> None:
        shell(commands)
        for name, value in values.items():
            setattr(one, name, value)

    return change


def part(name: Part, value: str | None = "2") -> Callable[[Pass], None]:
    """Return a change of a part of the key; None removes it."""

    def change(one: Pass) -> None:
        one.parts = {**one.parts, name: str(value)}
        if value is None:
            del one.parts[name]

    return change


Change = str | Callable[[Pass], None]
"""Commands of the shell, or a function."""


class Row(NamedTuple):
    """A change behind a compile, and the verdict."""

    change: Change
    reason: str | None
    """None: the output is current."""
    queries: Sequence[str] = ()
    first: Change = ""
    """Done before that compile."""
    always: str | None = None
    """Why the output is not current behind the next compile, either."""


ASKED = ["preprocessor"]
NOT_MADE = "it is not the file that was made"
LINK = "a link became a file of its own, or the reverse"
UNKNOWN = "its inputs are not fully known"
SIDE = sets(sides={"k.dwo": True})
SHARED = sets(sides={"record": False})
OWN = sets(own_folders=[GCC])
TWICE = (
    "echo '#include \"first/x.h\"' >>k.hip; echo '#include \"real/x.h\"' >>k.hip; echo {} >>k.hip"
)
LINKED = "echo '#include \"first/link.h\"' >>k.hip; echo '#include \"real/x.h\"' >>k.hip"
ROWS = {
    "nothing": Row("", None),
    # Inputs: only their content counts.
    "source": Row("echo >>k.hip", "'k.hip' changed"),
    "header": Row("echo two >second/value.h", "'second/value.h' changed"),
    "header of equal length": Row("echo Lib >second/lib.h", "'second/lib.h' changed"),
    "emptied header": Row(": >second/lib.h", "'second/lib.h' changed"),
    "header that goes, with its include": Row(
        "rm second/lib.h; sed -i /lib/d k.hip", "'k.hip' changed"
    ),
    "folder in a header's place": Row(
        "rm second/lib.h; mkdir second/lib.h; cp words third/lib.h", "'second/lib.h' changed"
    ),
    "touched": Row("touch k.hip second/value.h", None),
    "older times": Row("touch -t 198001010000 k.hip k.co", None),
    "saved anew": Row("echo one >second/value.h", None),
    "replaced by an equal file": Row("echo one >new; mv new second/value.h", None),
    "other content with the time of before": Row(
        "touch -r second/value.h stamp; echo two >second/value.h; touch -r stamp second/value.h",
        "'second/value.h' changed",
    ),
    "file that nobody reads": Row("echo two >first/other.h", None),
    "replaced, where inodes count": Row(
        "cp k.hip new; mv new k.hip", "'k.hip' changed", first=sets(with_identity=True)
    ),
    "saved anew, where inodes count": Row(
        "cp k.hip n; cat n >k.hip", None, (), sets(with_identity=True)
    ),
    # The key: what is known before.
    "flag": Row(lambda p: p.args.append("-DA"), "its command changed (with -DA)"),
    "flag that goes": Row(lambda p: p.args.remove("-c"), "its command changed (without -c)"),
    "another flag": Row(
        lambda p: p.args.__setitem__(1, "-S"), "its command changed (without -c; with -S)"
    ),
    "seven flags": Row(
        lambda p: p.args.extend(f"-D{n}" for n in range(7)),
        "its command changed (with -D0, -D1, -D2, -D3, -D4)",
    ),
    "order of folders": Row(lambda p: p.args.reverse(), "its command changed"),
    "compiler": Row(part(Part.COMPILER), "the compiler changed"),
    "variable": Row(part(Part.VARIABLES), "a variable that the compiler reads changed"),
    "folder of the build": Row(part(Part.FOLDER), "the folder of the build changed"),
    "processor": Row(part(Part.PROCESSOR), "the processor of this machine changed"),
    "part that goes": Row(part(Part.FOLDER, None), "the folder of the build changed"),
    "file that the command names": Row("echo two >words", "'words' changed"),
    "equal file that the command names": Row("cp words new; mv new words", None),
    "one file more that the command names": Row(
        sets(named=["words", "real/x.h"]), "'real/x.h' changed"
    ),
    "one file less": Row(sets(named=[]), "'words' changed"),
    # The output, and what is beside it.
    "output that is gone": Row("rm k.co", "it does not exist"),
    "folder in its place": Row("rm k.co; mkdir k.co; rmdir k.co", "it does not exist"),
    "empty output": Row(": >k.co", NOT_MADE),
    "truncated output": Row("truncate -s 9 k.co", NOT_MADE),
    "foreign output": Row("tr a-z 0-9 <k.co >new; mv new k.co", NOT_MADE),
    "copy of the output": Row("cp k.co new; mv new k.co", None),
    "manifest that is gone": Row(f"rm {MANIFEST}", "it has no manifest of an earlier compile"),
    "manifest that is cut": Row(
        f"truncate -s 99 {MANIFEST}", "it has no manifest of an earlier compile"
    ),
    "manifest of another version": Row(
        f"sed -i 's/\"version\": /&9/' {MANIFEST}", "it has no manifest of an earlier compile"
    ),
    "further output that is gone": Row(
        "rm k.dwo", "'k.dwo' is not the file that was made", (), SIDE
    ),
    "further output that is cut": Row(
        ": >k.dwo", "'k.dwo' is not the file that was made", (), SIDE
    ),
    "shared output that is gone": Row(
        "rm record", "'record' is not the file that was made", (), SHARED
    ),
    "shared output that others write": Row("echo >record", None, (), SHARED),
    # Names that were looked up in vain.
    "header that goes before": Row(
        "echo two >first/value.h", "'first/value.h' may be read now", ASKED
    ),
    "header beside the source": Row("echo two >value.h", "'value.h' may be read now", ASKED),
    "header that goes behind": Row("echo two >third/value.h", None, ASKED),
    "header in angles beside the source": Row("echo two >lib.h", None, ASKED),
    "header that is asked for": Row("echo >third/more.h", "'third/more.h' may be read now", ASKED),
    "several": Row(
        "echo >first/value.h; echo >first/lib.h",
        "'first/lib.h', 'first/value.h' may be read now",
        ASKED,
    ),
    "folder that is called so": Row("mkdir first/value.h", None),
    "dangling link": Row("ln -s none first/value.h", None, ()),
    "dangling link that gets a target": Row(
        "echo two >real/v.h",
        "'first/value.h' may be read now",
        ASKED,
        "ln -s ../real/v.h first/value.h",
    ),
    "header that clang refuses": Row(
        sets("echo >first/value.h", preprocesses=False),
        "'first/value.h' may be read now",
        ASKED,
    ),
    "header for which others are left out": Row(
        sets("echo >third/value.h", preprocess=lambda: ["k.hip"]), "'third/value.h' may be read now"
    ),
    "name that a macro may spell": Row(
        "", None, ASKED, "echo '#if __has_include(NAME)' >>k.hip; echo '#define NAME' >>k.hip"
    ),
    "header, where no path is known": Row("echo two >words2", None, ASKED, sets(own_folders=None)),
    # The compiler's own folders.
    "newer GCC, which is read": Row(
        f"mkdir {GCC}/12 gcc/include/c++/12; echo >gcc/include/c++/12/g.h",
        "another folder may be read now",
        ASKED,
        sets("echo '#include <g.h>' >>k.hip; echo >gcc/include/c++/11/g.h", own_folders=[GCC]),
    ),
    "newer GCC, which is not read": Row(
        f"mkdir {GCC}/12 gcc/include/c++/12", None, [*ASKED, "search path"], OWN
    ),
    # Which names are one file.
    "link that becomes a copy": Row(
        "cp --remove-destination real/x.h first/link.h", LINK, (), LINKED
    ),
    "copy that becomes a link": Row("ln -sf ../real/x.h first/x.h", LINK, (), TWICE.format("")),
    "copy that becomes a hard link": Row("ln -f real/x.h first/x.h", LINK, (), TWICE.format("")),
    "folder of a link that becomes a copy": Row(
        "rm linked; cp -r real linked",
        "a link became a folder of its own, or the reverse",
        (),
        lambda p: p.args.extend(["-Ilinked", "-Ireal"]),
    ),
    # What is never known.
    "unknown outputs": Row("", UNKNOWN, (), sets(is_recordable=False), UNKNOWN),
    "text for the assembler": Row(
        "", UNKNOWN, (), r"""echo 'asm(".incbin \"x\"");' >>k.hip""", UNKNOWN
    ),
}


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pass:
    """Return a pass over a source in the current folder."""
    monkeypatch.chdir(tmp_path)
    shell(BEFORE)
    return Pass()


def do(change: Change, one: Pass) -> None:
    if isinstance(change, str):
        shell(change)
    else:
        change(one)


def verdict(one: Pass) -> tuple[bool, str | None]:
    """Return the verdict of a new process, and the reason."""
    one.queries.clear()
    run = PassRun(one, DigestCache())
    return run.is_current(), str(run.reason) if run.reason else None


@pytest.mark.parametrize("name", ROWS)
def test_after_a_change(one: Pass, name: str) -> None:
    """Each change has its verdict; what is current is what a run would write."""
    row = ROWS[name]
    do(row.first, one)
    one.compile()
    do(row.change, one)
    assert verdict(one) == (row.reason is None, row.reason)
    assert one.queries == [*row.queries]
    before = Path("k.co").read_bytes() if row.reason is None else b""
    one.preprocesses = True
    one.compile()
    assert not before or Path("k.co").read_bytes() == before
    assert verdict(one) == (row.always is None, row.always)


WRITTEN = "'{}' was written to while it was read".format
MEANWHILE: dict[str, tuple[str, str, str | None]] = {
    # What happens before the compiler reads files, what behind that, and the next verdict.
    "header before": ("echo two >second/value.h", "", WRITTEN("second/value.h")),
    "header behind": ("", "echo two >second/value.h", WRITTEN("second/value.h")),
    "source before": ("echo >>k.hip", "", WRITTEN("k.hip")),
    "source behind": ("", "echo >>k.hip", WRITTEN("k.hip")),
    "source that goes": ("", "mv k.hip old.hip", WRITTEN("k.hip")),
    "file that the command names": ("", "echo two >words", "'words' changed"),
    "equal text": ("", "echo one >second/value.h", None),
    "hard link": ("", "ln second/value.h another.h", None),
    "header that goes before": ("", "echo two >first/value.h", "'first/value.h' may be read now"),
    "header that goes behind": ("", "echo two >third/value.h", None),
    "header that is asked for": ("", "echo >first/more.h", "'first/more.h' may be read now"),
    "file that nobody reads": ("", "echo two >second/other.h", None),
    "folder of headers": (
        "",
        "cp -r second new; mv second old; mv new second",
        "a link became a folder of its own, or the reverse",
    ),
    "equal copy of a link": (
        "",
        "cp --remove-destination real/x.h first/link.h",
        WRITTEN("first/link.h"),
    ),
}


@pytest.mark.parametrize(
    ("name", "is_first"),
    [*((name, False) for name in MEANWHILE), ("file that the command names", True)],
)
def test_during_a_compile(one: Pass, name: str, is_first: bool) -> None:
    """What happens while a pass runs is seen by the next verdict, and settled by the next run."""
    shell(LINKED)
    if not is_first:
        one.compile()
        one.args.append("-DA")
    one.before, one.after, reason = MEANWHILE[name]
    record = one.compile().record
    assert record is not None
    assert record.is_sure == (reason is None or "may be read" in reason)
    shell("[ -e k.hip ] || mv old.hip k.hip")
    assert verdict(one) == (reason is None, reason)
    one.compile()
    assert verdict(one) == (True, None)


class Stages:
    """Records how the stages of a pass begin."""

    def __init__(self, code: str = "", *, is_cut_off: bool = False) -> None:
        self.begun: list[bool] = []
        self.checked = ("", "", "")
        self.is_cut_off = is_cut_off
        self._bitcode = digest_of(code.encode()) if code != "prints" else code

    def begin(self, before: PassRecord | None, args: Sequence[str], *, is_unchanged: bool) -> None:
        self.begun.append(is_unchanged)

    def bitcode(self) -> str:
        return self._bitcode

    def check(self, before: str, made: str, output: str) -> None:
        self.checked = before, made, output


@pytest.mark.parametrize(
    ("change", "keeps", "expected"),
    [
        ("echo >>k.hip", True, True),
        ("echo >>k.hip", False, False),
        (lambda p: p.args.append("-DA"), True, False),
        ("echo two >words", True, False),
        ("rm k.co", True, False),
        (": >k.co", True, False),
        (f"rm {MANIFEST}", True, False),
        (sets(is_recordable=False), True, True),
    ],
)
def test_stages(one: Pass, change: Change, keeps: bool, expected: bool) -> None:
    """The backend may be left out if the command, its files and the output are as they were."""
    one.compile()
    do(change, one)
    run, stages = PassRun(one, DigestCache()), Stages()
    run.is_current()
    run.begin("marker")
    run.begin_stages(stages, keeps_output=keeps)
    assert stages.begun == [expected]
    record = run.finish()
    assert record.has_bitcode == one.is_recordable
    if run.record is not None and one.is_recordable:
        assert stages.checked == (run.record.output, record.output, "k.co")
    one.sides = {"k.co": True}
    assert run.finish().bitcode == ""


def test_what_a_run_tells(one: Pass) -> None:
    """A run has its reason, with notes, its inputs, and the file due to which it runs again."""
    shell('echo \'asm(".incbin \\\\"x\\\\"");\' >second/value.h')
    one.is_judged = True
    run = one.compile()
    assert run.unknown_input == "second/value.h"
    assert run.inputs() == ["k.hip", "second/value.h", "second/lib.h", "words"]
    run.add_note("a note")
    assert str(run.reason) == "it has no manifest of an earlier compile; a note"
    shell("echo one >second/value.h")
    run = one.compile()
    assert (run.unknown_input, str(run.reason)) == ("", "its inputs are not fully known")
    run = PassRun(one, DigestCache())
    assert (run.is_current(), run.reason) == (True, None)
    run.add_note("of what does not run")
    assert run.reason is None


def test_unlisted_files(one: Pass) -> None:
    """A pass that reads a file by another name than its own runs each time."""
    one.args = [*one.args, "-Xclang", "-ivfsoverlay", "-Xclang", "words"]
    shell("echo 'use-external-names: false' >words")
    one.compile()
    run = PassRun(one, DigestCache())
    assert (run.is_current(), str(run.reason)) == (False, "its inputs are not fully known")


def test_manifests_that_may_not_be_written(one: Pass) -> None:
    """Nothing is written then; a verdict stands where a record cannot be saved."""
    one.may_write = False
    one.compile()
    assert not Path(MANIFEST).exists()
    one.may_write = True
    one.compile()
    shell("echo two >third/value.h")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("offload_tool.manifest.manifest.replace_small_file", _full)
        assert verdict(one) == (True, None)
    assert one.queries == ASKED
    assert (verdict(one), one.queries) == ((True, None), ASKED)
    assert (verdict(one), one.queries) == ((True, None), [])


def _full(*_: object) -> NoReturn:
    raise OSError("no space left")


def test_without_headers(one: Pass) -> None:
    """What has no preprocessor, such as a link, looks nothing up."""
    one.reads_headers = False
    one.compile()
    shell("echo two >first/value.h")
    assert verdict(one) == (True, None)
    shell("echo >>k.hip")
    assert verdict(one) == (False, "'k.hip' changed")
    assert one.queries == []


@pytest.mark.parametrize("code", ["", "same"])
def test_states_with_the_same_output(one: Pass, code: str) -> None:
    """The output is current for each state of the inputs from which a run has made it.

    Runs with other bitcode may make the same output.
    """
    one.code = code
    one.compile(Stages())
    for text in ("two", "three"):
        shell(f"echo {text} >second/value.h; echo lib {text} >second/lib.h")
        one.compile(Stages(code and text, is_cut_off=not code))
    for text, other in (("one", "lib"), ("two", "lib two"), ("three", "lib three")):
        shell(f"echo {text} >second/value.h; echo {other} >second/lib.h")
        assert verdict(one) == (True, None)
    shell("echo one >second/value.h")
    assert not verdict(one)[0]
    shell("echo lib >second/lib.h; echo more >words")
    assert not verdict(one)[0]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("echo >>k.hip '#include \"x.h\"'", "same"),
        ("echo new >words", "same"),
        ("true", "other"),
        ("true", "prints"),
    ],
)
def test_states_of_other_runs(one: Pass, change: str, code: str) -> None:
    """No state stays if the pass reads another file, has another key, or other results."""
    one.code = "same"
    one.compile(Stages())
    shell(f"echo two >second/value.h; {change}")
    one.code = code if code == "other" else "same"
    one.compile(Stages(code))
    record = PassRun(one, DigestCache()).record
    assert record is not None
    assert record.earlier == ()
