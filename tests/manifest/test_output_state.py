"""What `offload-tool compile` knows before a pass runs, and of which passes all is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offload_tool.clang.environment import ImplicitInputs
from offload_tool.io.file_digests import DigestCache
from offload_tool.manifest.key import Part
from offload_tool.manifest.output_state import CommandResolver, Work
from offload_tool.toolchain import identity

VARIABLES = (
    *("CCC_OVERRIDE_OPTIONS", "CLANG_NO_DEFAULT_CONFIG", "COMPILER_PATH", "CPATH", "CUDA_PATH"),
    *("C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "HIP_DEVICE_LIB_PATH", "HIP_PATH", "ROCM_PATH"),
    *("LLD_VERSION", "LLVM_OVERRIDE_PRODUCER", "SOURCE_DATE_EPOCH"),
)
FILES = {
    "k.hip": "",
    "words": "-DA=1 @inner",
    "inner": "-DB=1",
    "marked": "-DA=1",
    "c.cfg": "-DA=1",
    "pre.h": "",
    "lib.bc": "",
    "plain.a": "!<arch>\n",
    "thin.a": "!<thin>\n",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(identity, "configuring_files", lambda args, environment: ())
    for name, text in FILES.items():
        Path(name).write_text(text)


def resolver(*flags: str, embeds: bool = False, **values: Any) -> CommandResolver:
    known = {
        "output": "k.co",
        "command": ["clang", "-c", "k.hip", *flags],
        "environment": {},
        "compiler": "clang 1",
        "inputs": ("k.hip",),
        "implicit_inputs": lambda: ImplicitInputs(("first",), embeds, ("lib.bc",)),
        "files_read": lambda: ["k.hip"],
        "preprocess": list,
    }
    return CommandResolver(Work(**{**known, **values}), DigestCache())


@pytest.mark.parametrize(
    ("part", "flags", "values"),
    [
        *((Part.VARIABLES, (), {"environment": {name: "1"}}) for name in VARIABLES),
        (Part.COMMAND, ("-DA",), {}),
        (Part.COMPILER, (), {"compiler": "clang 2"}),
        (Part.VERSION, (), {"version": lambda: "2"}),
        (Part.FOLDER, (), {"embeds": True}),
        (None, (), {"environment": {"TERM": "1"}}),
        (None, (), {"environment": {"PWD": "/elsewhere"}}),
    ],
)
def test_parts(part: Part | None, flags: tuple[str, ...], values: dict[str, Any]) -> None:
    """Each part of the key has what it is named after, and nothing else changes it."""
    before, now = resolver().key(None), resolver(*flags, **values).key(None)
    changed = [name for name in before.parts if before.parts[name] != now.parts[name]]
    assert (changed, before.files) == ([part] if part else [], now.files)


def test_folder_and_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the output has the name of the folder, both of its names count; so does ``native``."""
    before = resolver(embeds=True).key(None).parts
    other = resolver(embeds=True, environment={"PWD": "/elsewhere"}).key(None).parts
    assert before[Part.FOLDER] != other[Part.FOLDER]
    Path("sub").mkdir()
    monkeypatch.chdir("sub")
    assert resolver(embeds=True).key(None).parts[Part.FOLDER] != before[Part.FOLDER]
    assert before[Part.PROCESSOR] == ""
    Path("marked").write_text("-march=native")
    for flag in ("-march=native", "@marked"):
        assert resolver(flag).key(None).parts[Part.PROCESSOR] != ""


@pytest.mark.parametrize(
    ("flags", "files"),
    [
        ((), []),
        (("@words",), ["words", "inner"]),
        (("--config", "./c.cfg"), ["./c.cfg"]),
        (("--config=./c.cfg",), ["./c.cfg"]),
        (("-include", "pre.h"), ["pre.h"]),
        (("-Xclang", "-include", "-Xclang", "pre.h"), ["pre.h"]),
        (("-DA", "none.h", "-o", "k.co"), []),
    ],
)
def test_files_of_the_command(flags: tuple[str, ...], files: list[str]) -> None:
    """The key has each file that the command names, and the libraries that are linked."""
    one = resolver(*flags)
    digests = one.key(None).files
    assert list(digests) == [*files, "lib.bc"]
    assert one.inputs_before() == ["k.hip", *files]
    for name in files:
        Path(name).write_text(f"{Path(name).read_text()} ")
        assert resolver(*flags).key(None).files[name] != digests[name]


@pytest.mark.parametrize(
    ("expected", "flags", "values"),
    [
        (True, (), {}),
        (False, ("--save-temps",), {}),
        (False, ("-ftime-trace",), {}),
        (False, ("-gsplit-dwarf",), {}),
        (False, ("-MD",), {}),
        (False, ("@marked",), {"marked": "-ftime-trace"}),
        (False, (), {"names_all_inputs": False}),
        (False, ("-Xoffload-linker", "-lmore"), {}),
        (True, (), {"preprocess": None}),
        (True, (), {"preprocess": None, "files_read": lambda: ["plain.a"]}),
        (False, (), {"preprocess": None, "files_read": lambda: ["plain.a", "thin.a"]}),
        (False, ("-lmore",), {"preprocess": None}),
        (True, (), {"files_read": lambda: ["thin.a"]}),
    ],
)
def test_what_is_recordable(expected: bool, flags: tuple[str, ...], values: dict[str, Any]) -> None:
    """Further outputs, libraries that a linker finds and thin archives are never known."""
    Path("marked").write_text(values.pop("marked", ""))
    assert resolver(*flags, **values).is_recordable == expected


def test_files_read() -> None:
    """The source counts in any case, once; what the preprocessor does not say is not known."""
    assert resolver(files_read=lambda: ["x.h"]).files_read() == ["x.h", "k.hip"]
    assert resolver().files_read() == ["k.hip"]
    assert resolver(preprocess=lambda: ["x.h", "k.hip"]).preprocess() == ["x.h", "k.hip"]
    assert resolver(preprocess=lambda: None).preprocess() is None
    assert resolver(preprocess=None).preprocess() is None
    assert resolver().search_path() == ("first",)
    assert [resolver(preprocess=made).reads_headers for made in (list, None)] == [True, False]
    assert [resolver(by_inode=given).with_identity for given in (True, False)] == [True, False]
