"""What a compile puts into its output beside its source: the working directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offload_tool.clang.environment import front_end_of, has_time_macro
from tests.conftest import Tool, run_tool

INSTRUMENTED = ("-fprofile-instr-generate", "-fcoverage-mapping")
COMMANDS = {
    "none": (),
    "-g": ("-g",),
    "-g0": ("-g", "-g0"),
    "-gline-tables-only": ("-gline-tables-only",),
    "-gpubnames": ("-gpubnames",),
    "-ggdb": ("-ggdb",),
    "fixed": ("-g", "-fdebug-compilation-dir=."),
    "fixed for all": ("-g", *INSTRUMENTED, "-ffile-compilation-dir=."),
    "fixed for debug information": ("-g", *INSTRUMENTED, "-fdebug-compilation-dir=."),
    "mapped": ("-g", *INSTRUMENTED, "-ffile-prefix-map={here}=."),
    "mapped with a slash": ("-g", "-ffile-prefix-map={here}/=./"),
    "mapped for debug information": ("-g", *INSTRUMENTED, "-fdebug-prefix-map={here}=."),
    "mapped in macros": ("-g", "-fmacro-prefix-map={here}=."),
    "folder above mapped": ("-g", "-ffile-prefix-map={above}=."),
    "both": ("-g", "-ffile-prefix-map={here}=a", "-ffile-prefix-map={above}=b"),
    "both, the other way": ("-g", "-ffile-prefix-map={above}=b", "-ffile-prefix-map={here}=a"),
    "by the front end": ("-Xclang", "-debug-info-kind=limited"),
    "coverage": INSTRUMENTED,
    "profile alone": INSTRUMENTED[:1],
    "--coverage": ("--coverage",),
    "-fprofile-arcs": ("-fprofile-arcs",),
    "remarks": ("-fsave-optimization-record", "-foptimization-record-file=/dev/null"),
    "recorded": ("-frecord-command-line",),
    "recorded with a name": ("-frecord-command-line", "-I{here}"),
    "recorded, mapped": ("-grecord-command-line", "-g", "-ffile-prefix-map={here}=."),
    "recorded without -g": ("-grecord-command-line", "-I{here}"),
    "bitcode": ("-fembed-bitcode",),
    "bitcode by the front end": ("-Xclang", "-fembed-bitcode=all"),
    "command by the front end": ("-Xclang", "-fembed-bitcode=marker"),
    "response file": ("@words",),
    "configuration": ("--config=./words",),
}


@pytest.mark.llvm
@pytest.mark.parametrize("args", COMMANDS.values(), ids=COMMANDS.keys())
def test_working_directory(
    args: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    llvm: Tool,
) -> None:
    """The plan tells of the working directory just where two directories give two objects."""
    made, told = set(), set()
    for name in ("one", "two"):
        places = {"here": str(tmp_path / name), "above": str(tmp_path)}
        command = [llvm("clang++"), *(word.format(**places) for word in args), "-c"]
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setenv("PWD", os.getcwd())  # noqa: PTH109
        (tmp_path / name / "words").write_text("-g")
        (tmp_path / name / "t.cpp").write_text("int f(int x) { return x ? x + 1 : 0; }\n")
        run_tool(*command, "-o", "t.o", "t.cpp")
        made.add((tmp_path / name / "t.o").read_bytes())
        told.add(front_end_of(command, dict(os.environ)).embeds_folder)
    assert told == {len(made) == 2}


@pytest.mark.llvm
def test_working_directory_of_spirv(llvm: Tool) -> None:
    """Portable code for AMD GPUs has the front end's command, and so the working directory."""
    flags = ["-x", "hip", "--offload-device-only", "-nogpuinc", "-nogpulib", "-c"]
    told = {
        target: front_end_of(
            [llvm("clang++"), f"--offload-arch={target}", *flags], {}
        ).embeds_folder
        for target in ("amdgcnspirv", "gfx906")
    }
    assert told == {"amdgcnspirv": True, "gfx906": False}


@pytest.mark.llvm
def test_edited_options(llvm: Tool) -> None:
    """Options that the environment adds count, too."""
    command = [llvm("clang++"), "-c"]
    assert front_end_of(command, {**os.environ, "CCC_OVERRIDE_OPTIONS": "#+-g"}).embeds_folder
    assert not front_end_of(command, dict(os.environ)).embeds_folder


@pytest.mark.parametrize(
    "form", ["P({}, {})", "{}##{};", "{} ## {} x", "#define A {}\n#define B {}\n"]
)
@pytest.mark.parametrize("macro", ["__TIME__", "__DATE__", "__TIMESTAMP__"])
def test_macros_of_the_time(macro: str, form: str) -> None:
    """A macro counts by its name, and in two pieces wherever it is cut."""
    assert has_time_macro(f"-DNOW={macro}".encode())
    for at in range(1, len(macro)):
        assert has_time_macro(form.format(macro[:at], macro[at:]).encode()), at
    # So is the comment in glibc's bits/types.h.
    assert not has_time_macro(b"/* Defines __TIME*_T_TYPE macros. */ TIME, x__TIME, STAMP__2)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('#pragma GCC dependency "a.y"', True),
        ('_Pragma("clang dependency \\"a.y\\"")', True),
        ("#pragma GCC /* a comment */ \\\n dependency <a.y>", True),
        ("// GCC has\n// no dependency here", False),
    ],
)
def test_times_of_files(text: str, expected: bool) -> None:
    """A pragma that compares the times of two files counts, however it is written."""
    assert has_time_macro(text.encode()) == expected
