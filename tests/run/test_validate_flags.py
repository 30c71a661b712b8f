"""Flags that would take a word of ours, or name files that are named elsewhere, are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from offload_tool.errors import UsageError
from offload_tool.run.validate_flags import check_depfile_flags, check_flags


@pytest.mark.parametrize(
    "flags", ["-Xclang", "-O2 -mllvm", "-DA -include", "-D", "-Xarch_device", "-Xclang -mllvm -x"]
)
def test_value_wanted(flags: str) -> None:
    """The last flag would take the next word."""
    words = flags.split()
    with pytest.raises(UsageError, match=f"'{words[-1]}' at the end of the flags wants a value"):
        check_flags(words)


@pytest.mark.parametrize("flags", ["-o", "-o x.o", "-O2 -o x.o -g"])
def test_output(flags: str) -> None:
    """The output is named once."""
    with pytest.raises(UsageError, match="'-o' among the flags"):
        check_flags(flags.split())


@pytest.mark.parametrize("flags", ["-include /dev/stdin", "-include/dev/fd/63"])
def test_open_file(flags: str) -> None:
    """What is open already may be something else for the compiler."""
    with pytest.raises(UsageError, match="is a file that is open already"):
        check_flags(flags.split())


@pytest.mark.parametrize(
    "flags",
    [
        *("", "-O2", "-Xclang -o -Xclang x", "-I inc -D A", "-Iinc -DA", "-mllvm -o", "-x hip"),
        *("-Xarch_device -O3", "-foptimization-record-file=/dev/stderr", "-include -Xclang"),
    ],
)
def test_others(flags: str) -> None:
    """Values are no flags, and flags with their values are complete."""
    check_flags(flags.split())


def test_in_response_files(tmp_path: Path) -> None:
    """What a response file holds is among the flags."""
    (tmp_path / "words").write_text("-O2 -Xclang\n")
    with pytest.raises(UsageError, match="'-Xclang' at the end"):
        check_flags([f"@{tmp_path / 'words'}"])


@pytest.mark.parametrize(
    ("flags", "depfile", "refused"),
    [
        ("-MD", None, "-MD"),
        ("-MMD -MT x", None, "-MMD"),
        ("-MD -MF x.d", None, "-MD"),
        ("-MF x.d", None, "-MF"),
        ("-MFx.d", "y.d", "-MF"),
        ("-MD -MF x.d", "y.d", "-MF"),
        ("-MD -MF x.d", "x.d", ""),
        ("-MD", "x.d", ""),
        ("-O2", None, ""),
    ],
)
def test_depfiles(flags: str, depfile: str | None, refused: str) -> None:
    """A depfile that is asked for by flags is the one that is written."""
    if not refused:
        check_depfile_flags(flags.split(), depfile)
        return
    with pytest.raises(UsageError, match=f"'{refused}' among the flags; name the depfile by"):
        check_depfile_flags(flags.split(), depfile)
