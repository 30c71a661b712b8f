"""The two stages of a device pass: when there are two, and when the second is left out."""

from __future__ import annotations

import tempfile

import pytest

from offload_tool.io.file_digests import digest_of
from offload_tool.manifest import cut_off
from offload_tool.manifest.cut_off import Stages
from offload_tool.manifest.include_search import Lookups
from offload_tool.manifest.key import Key
from offload_tool.manifest.manifest import PassRecord

JOB = ("clang", "-cc1", "-emit-obj", "-O2", "-include", "a.h", "-o", "k.o", "-x", "hip", "k.hip")
BEFORE = PassRecord(Key(), {}, Lookups(), "made", bitcode=digest_of(b"bitcode"))
SHORT = BEFORE._replace(bitcode="short")
PRINTS = BEFORE._replace(bitcode="prints")


def begun(
    before: PassRecord | None = BEFORE, *flags: str, is_on: bool = True, is_unchanged: bool = True
) -> Stages:
    """Return the stages of a pass with flags that follows a recorded one."""
    stages = Stages(is_on=is_on)
    stages.begin(before, ["clang", *flags], is_unchanged=is_unchanged)
    return stages


def test_two_jobs() -> None:
    """The front end writes bitcode without optimisation; the backend has no flags of headers."""
    first, second = begun().jobs(JOB, "k.bc")
    emit = ("-emit-llvm-bc", "-emit-llvm-uselists", "-disable-llvm-passes")
    assert first[2:6] == (*emit, "-O2")
    assert first[-5:] == ("-o", "k.bc", "-x", "hip", "k.hip")
    assert second == ("clang", "-cc1", "-emit-obj", "-O2", "-o", "k.o", "-x", "ir", "k.bc")


ONE_STAGE = [
    *("-ffast-math", "-ffp-contract=fast", "-fsanitize=address", "-fprofile-sample-use=f"),
    *("-fpseudo-probe-for-profiling", "-fcoverage-mapping", "-ftime-trace=f", "-emit-obj"),
    *("-gsplit-dwarf", "-fsave-optimization-record", "-fstack-usage", "-load", "-fmodules"),
]


@pytest.mark.parametrize("flag", ONE_STAGE)
def test_flags_that_need_one_stage(flag: str) -> None:
    """Where two stages would give other bytes, or write other files, there is one."""
    assert begun().jobs((*JOB[:3], flag, *JOB[3:]), "k.bc") == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [("-O2", "-O0"), ("-emit-obj", "-S"), ("-emit-obj", "-fsyntax-only"), ("hip", "c")],
)
def test_jobs_of_one_stage(old: str, new: str) -> None:
    """Without optimisation, an object or HIP there is one."""
    assert begun().jobs([new if arg == old else arg for arg in JOB], "k.bc") == ()


@pytest.mark.parametrize(
    ("stages", "count"),
    [
        (begun(), 2),
        (begun(is_unchanged=False), 2),
        (begun(is_on=False), 0),
        (begun(SHORT), 0),
        (begun(PRINTS), 0),
        (begun(BEFORE._replace(output="")), 0),
        (begun(BEFORE._replace(bitcode="")), 2),
        (begun(None), 2),
        (begun(None, "-nogpuinc"), 0),
        (begun(BEFORE, "-nogpuinc"), 2),
    ],
)
def test_which_passes_have_two(stages: Stages, count: int) -> None:
    """Those that were long, or may be, and whose inputs are known."""
    assert len(stages.jobs(JOB, "k.bc")) == count


def run(
    stages: Stages,
    bitcode: bytes,
    *,
    front_end: bytes = b"",
    backend: bytes = b"",
    made: bytes = b"",
) -> bool:
    """Run both jobs, which write and print; return whether the second is left out."""
    with tempfile.TemporaryFile() as written, tempfile.TemporaryFile() as errors:
        for number, texts in enumerate(((bitcode, front_end), (b"", backend))):
            for file, text in zip((written, errors), texts, strict=True):
                file.write(text)
                file.flush()
            if stages.stops_after(number, written, errors, lambda: made):
                break
    return stages.is_cut_off


@pytest.mark.parametrize(
    ("stages", "bitcode", "expected"),
    [
        (begun(), b"bitcode", True),
        (begun(), b"other", False),
        (begun(is_unchanged=False), b"bitcode", False),
        (begun(BEFORE._replace(bitcode="")), b"bitcode", False),
        (begun(None), b"bitcode", False),
    ],
)
def test_when_the_backend_is_left_out(
    stages: Stages, bitcode: bytes, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is if the bitcode is that of the output; the record has its digest in any case."""
    monkeypatch.setattr(cut_off, "_TOO_SHORT", 0)
    assert run(stages, bitcode, front_end=b"a warning") == expected
    assert stages.bitcode() == digest_of(bitcode)
    assert stages.front_end_seconds > 0
    stages.reset()
    assert (stages.bitcode(), stages.is_cut_off, stages.front_end_seconds) == ("", False, 0)


def test_what_the_backend_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass whose backend prints something runs again as one job, and is one the next time."""
    monkeypatch.setattr(cut_off, "_TOO_SHORT", 0)
    stages = begun()
    assert stages.jobs(JOB, "k.bc")
    assert not run(stages, b"other", front_end=b"a warning", backend=b"a remark")
    assert (stages.must_repeat, stages.bitcode()) == (True, "prints")
    assert stages.jobs(JOB, "k.bc") == ()
    assert (stages.must_repeat, stages.bitcode()) == (False, "prints")


def test_what_the_backend_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass whose object is no ELF file with known names runs again as one job, and is one."""
    monkeypatch.setattr(cut_off, "_TOO_SHORT", 0)
    stages = begun()
    assert not run(stages, b"other", made=b"no ELF file")
    assert (stages.must_repeat, stages.bitcode()) == (True, "numbers")
    for each in (stages, begun(BEFORE._replace(bitcode="numbers"))):
        assert each.jobs(JOB, "k.bc") == ()
        assert (each.must_repeat, each.bitcode()) == (False, "numbers")


def test_short_passes() -> None:
    """A short pass is recorded as such, unless its backend was left out."""
    stages = begun()
    run(stages, b"other")
    assert stages.bitcode() == "short"
    assert run(stages, b"bitcode")
    assert stages.bitcode() == digest_of(b"bitcode")
