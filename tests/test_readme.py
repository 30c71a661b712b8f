"""The README keeps its word."""

from __future__ import annotations

import re
import shlex

from offload_tool.cli.llvm.bundler import BUNDLER_COMMAND_LINE
from offload_tool.cli.parser import whole_parser
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()


def test_two_commands_do_all_the_set_up() -> None:
    """The first sh block is two lines; each sets up an environment of its own and uses it."""
    block = re.search(r"```sh\n(.*?)```", README, re.DOTALL)
    assert block
    main_job, tests = block[1].splitlines()
    for line in (main_job, tests):
        first, install, *rest = [shlex.split(part) for part in line.split(" && ")]
        assert first == ["python3", "-m", "venv", ".venv"]
        assert install[:2] == [".venv/bin/pip", "install"]
        assert rest
    assert main_job.endswith(".venv/bin/offload-tool list build/saxpy/saxpy")
    assert tests.endswith(".venv/bin/pytest")


def test_one_version() -> None:
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    assert f"offload-tool bundler {version[1]} " in BUNDLER_COMMAND_LINE.version


def test_every_command_is_in_the_table() -> None:
    page = (ROOT / "docs/commands.md").read_text()
    rows = "\n".join(re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE))
    shown = whole_parser().format_help().partition("  COMMAND\n")[2]
    commands = re.findall(r"^    (\w+)(?: |$)", shown, re.MULTILINE)
    assert len(commands) > 15
    assert [name for name in commands if not re.search(rf"`{name}\b", rows)] == []
