"""Jobs of the driver's plan: what is not known of them rules the plan out."""

from __future__ import annotations

import pytest

from offload_tool.clang.job_plan import UnknownPlanError, job_in, unknown_arg


@pytest.mark.parametrize(
    "args",
    [
        ("-mllvm", "-print-after-all"),
        ("-mllvm=-print-after-all",),
        ("-plugin-opt=-print-after-all",),
        ("--plugin-opt=-stats",),
    ],
)
def test_options_of_llvm_that_write(args: tuple[str, ...]) -> None:
    """An option of LLVM's that makes each pass write or print something is rejected."""
    with pytest.raises(UnknownPlanError, match="lets LLVM write or say more"):
        job_in(["/x/lld", "-flavor", "gnu", *args, "-o", "out"])


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("-mllvm", "-anything", "-z", "-L"), ""),
        (("-z", "-L", "-lfoo"), "-lfoo"),
        (("-mllvm", "-include", "--reproduce=x"), "--reproduce=x"),
    ],
)
def test_values_that_look_like_options(args: tuple[str, ...], expected: str) -> None:
    """A value of an option hides no option behind it."""
    assert unknown_arg(args) == expected
