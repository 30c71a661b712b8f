"""The table of options: clang and lld know each, and all that ask agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.clang.options import (
    _OPTIONS,
    ELSEWHERE,
    LIBRARY,
    LINKED,
    LINKER,
    NEXT,
    OF_LLD,
    SIBLING,
    TARGETS,
    WITHOUT_PCH,
    WRITES,
    does,
    is_one_of,
    prefixes,
    takes_next,
    values,
    without_values,
)
from offload_tool.manifest.output_state import WRITES_FILES
from offload_tool.sccache_dist.cluster import why_local
from tests.conftest import Tool, try_tool

USED_OTHERWISE = {"--load-pass-plugin", "--autocomplete", "-cc1", "@"}
"""The first is of ``opt``, the others are used below, and in each build."""


def output(*args: str) -> str:
    done = try_tool(*args)
    return done.stdout + done.stderr


@pytest.mark.llvm
def test_clang_knows_each(llvm: Tool) -> None:
    """Clang completes each option, or takes it: some spellings are not completed."""
    clang = llvm("clang")
    completed = [
        *output(clang, "--autocomplete=-").splitlines(),
        *output(clang, "--autocomplete=-cc1,-").splitlines(),
    ]
    against_pch = dict.fromkeys((n for names in WITHOUT_PCH.values() for n in names), 0)
    for name, bits in {**against_pch, **_OPTIONS}.items():
        if name in USED_OTHERWISE or bits & OF_LLD:
            continue
        if any(line.startswith(name) for line in completed):
            continue
        of_job = f"{name}/dev/null" if bits & WRITES else name
        answers = [
            output(clang, "-###", name, "-x", "c", "-c", "/dev/null"),
            output(clang, "-cc1", "-Eonly", of_job, "-x", "c", "/dev/null"),
        ]
        assert any("unknown argument" not in answer for answer in answers), name


@pytest.mark.llvm
def test_lld_knows_each(llvm: Tool) -> None:
    """The linker lists each of its options, or takes it."""
    lld = llvm("ld.lld")
    listed = output(lld, "--help").split()
    for name, bits in _OPTIONS.items():
        if bits & OF_LLD and not any(word.startswith(name) for word in listed):
            assert "unknown argument" not in output(lld, name), name
            assert "unknown option" not in output(lld, name), name


@pytest.mark.parametrize("name", prefixes(SIBLING | ELSEWHERE | LINKER | WRITES))
def test_what_writes_stays(name: str) -> None:
    """A compile that writes another file is not kept without it, nor sent to another machine."""
    assert does(name, WRITES_FILES)
    command = ["clang++", "--cuda-device-only", "-x", "hip", "-c", "k.hip", "-o", "k.o"]
    assert why_local(command) == ""
    output = why_local([*command, name])
    assert "on the server" in output or name.endswith("-dependency-file")


@pytest.mark.llvm
def test_which_take_the_next_word(tmp_path: Path, llvm: Tool) -> None:
    """Clang says of each option that takes the next word, and of no other, that it is missing."""
    (tmp_path / "a.c").write_text("int x;\n")
    clang = llvm("clang")

    def wants_value(*option: str) -> bool:
        args = [clang, *option]
        done = try_tool(*args, cwd=tmp_path)
        return f"argument to '{option[-1]}' is missing" in done.stderr

    wanting = {name for name in _OPTIONS if wants_value("-###", "-c", "a.c", name)}
    taking = {name for name, bits in _OPTIONS.items() if bits & NEXT}
    of_lld = {name for name, bits in _OPTIONS.items() if bits & OF_LLD}
    assert wanting - of_lld <= taking
    of_jobs = taking - wanting
    assert of_jobs
    assert [name for name in of_jobs if not wants_value("-cc1", name)] == []
    assert takes_next("-Xarch_gfx906")
    assert takes_next("-Xopenmp-target=nvptx64")


@pytest.mark.parametrize(
    ("alias", "option"),
    [
        ("--include", "-include"),
        ("--imacros", "-imacros"),
        ("--define-macro", "-D"),
        ("--undefine-macro", "-U"),
        ("--language", "-x"),
        ("--no-standard-includes", "-nostdinc"),
        ("--output", "-o"),
    ],
)
def test_aliases(alias: str, option: str) -> None:
    """A long name has the effects of the short one."""
    assert _OPTIONS[alias] == _OPTIONS[option]


def test_values() -> None:
    """A value is the next word, or behind the name, as the driver's plan has it."""
    job = ["-cc1", "-split-dwarf-output", "k.dwo", "-ftime-trace=k.json", "-o", "k.o"]
    assert [*values(job, WRITES)] == ["k.dwo", "k.json"]
    assert [*values(job, LIBRARY)] == []
    assert [*values(["-Map=a", "--Map", "b", "-dependency-file"], LINKER)] == ["a", "b"]
    assert [*without_values(job, WRITES)] == ["-cc1", "-o", "k.o"]


def test_the_very_option() -> None:
    """With or without a value, but no other option that begins so."""
    args = ["-fopenmp", "-fopenmp=libomp", "-fopenmp-targets=nvptx64", "-stdlib=x", "-m64"]
    assert [is_one_of(word, LINKED) for word in args] == [True, True, False, True, True]
    assert not is_one_of("--target=x86_64", TARGETS)
