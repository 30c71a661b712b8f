"""Small files whose tables repeat the same bytes do not cost much time or memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import try_tool
from tests.untrusted.small_files import CASES

SECONDS, MEGABYTES = 3, 200
# A child inherits this process's peak memory, so it imports nothing else.
_MEASURE = """
import os, resource, sys
child = os.fork()
if not child:
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    os.execv(sys.executable, [sys.executable, '-m', 'offload_tool', *sys.argv[1:]])
_, status, used = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss >> 10)
"""


@pytest.mark.parametrize("name", CASES)
def test_small_files_much_work(name: str, tmp_path: Path) -> None:
    args, make, refused = CASES[name]
    assert sum((tmp_path / file).write_bytes(data) for file, data in make().items()) < 16 << 20
    done = try_tool(sys.executable, "-S", "-c", _MEASURE, *args.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    status, seconds, megabytes = done.stdout.splitlines()[-1].split()
    assert status in ("0", "1"), done.stderr
    assert float(seconds) < SECONDS
    assert int(megabytes) < MEGABYTES
    assert "unexpected error" not in done.stderr
    assert refused in done.stderr
