"""The reference and the page of messages: every command, option, name and error has an entry."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import offload_tool
from offload_tool import errors
from offload_tool.cli import main
from offload_tool.cli.llvm.bundler import BUNDLER_COMMAND_LINE
from offload_tool.cli.llvm.packager import PACKAGER_COMMAND_LINE
from offload_tool.cli.llvm.wrapper import OLDER_WRAPPER_COMMAND_LINE, WRAPPER_COMMAND_LINE
from offload_tool.scons import variables
from tests.conftest import ROOT
from tests.site.conftest import load

reference = load("reference")
PAGE = reference.commands_page()
COMMANDS = dict(reference.commands())
SECTIONS = dict(re.findall(r"^## (offload-tool.*)\n\n((?:(?!## ).*\n)*)", PAGE, re.MULTILINE))


def help_of(command: str) -> str:
    with (
        contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), write_through=True)) as out,
        contextlib.suppress(SystemExit),
    ):
        main([*command.split()[1:], "--help"])
    return str(out.buffer.getvalue(), "utf-8")  # type: ignore[attr-defined]


def described(command: str) -> set[str]:
    """Return the names that a command's section has an entry for."""
    lines = re.findall(r"^- (`.*?`): ", SECTIONS[command], re.MULTILINE)
    return {part.strip("`").split(" ")[0] for line in lines for part in line.split("`, `")}


@pytest.mark.parametrize("path", reference.pages(), ids=lambda path: path.stem)
def test_generated_parts(path: Path) -> None:
    """The page in the repository is what the code makes of it now."""
    is_current = path.read_text(encoding="utf-8") == reference.pages()[path]
    assert is_current, f"{path.name} is out of date: run python docs/reference.py, and commit"


def test_messages_of_a_build() -> None:
    """Each variable that replaces a message is on the page, with that message."""
    page = reference.builders_page()
    names = [name for name in variables.DEFAULTS if name.endswith("COMSTR")]
    assert "| `OFFLOADDEVICECOMSTR` | `HIP [gfx942] SOURCE` |" in page
    assert [name for name in names if f"\n| `{name}` | `" not in page] == []


def test_every_command() -> None:
    for command in ("offload-tool", "offload-tool dist"):
        listed = re.findall(r"^    ([a-z]+)( |$)", help_of(command), re.MULTILINE)
        assert listed
        sections = {
            section.removeprefix(f"{command} ")
            for section in SECTIONS
            if section.startswith(f"{command} ") and section.count(" ") == command.count(" ") + 1
        }
        assert {name for name, _ in listed} == sections


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option(command: str) -> None:
    """What ``--help`` has at the beginning of a line is in the command's section."""
    text = help_of(command)
    columns = [part for part, _ in re.findall(r"^ {2,4}(-.*?)(  | - |$)", text, re.MULTILINE)]
    names = {name for part in columns for name in re.findall(r"(?<![\w-])-[-\w#]+", part)}
    assert names & {"-h", "--help"}
    lists = {"--help-list"} if text.startswith("OVERVIEW") else set()  # of the same options
    assert names - lists <= described(command)


@pytest.mark.parametrize(
    ("command", "command_line"),
    [
        ("bundler", BUNDLER_COMMAND_LINE),
        ("packager", PACKAGER_COMMAND_LINE),
        ("wrapper", WRAPPER_COMMAND_LINE),
        ("wrapper", OLDER_WRAPPER_COMMAND_LINE),
    ],
)
def test_options_that_help_hides(command: str, command_line: object) -> None:
    """What the drop-ins take and LLVM's help texts leave out has an entry, too."""
    options = {option.dashed for option in command_line.options}  # type: ignore[attr-defined]
    assert options - {"-h"} <= described(f"offload-tool {command}")


@pytest.mark.parametrize("command", COMMANDS)
def test_something_is_said(command: str) -> None:
    """A command has a description, and each argument and option a text."""
    parser = COMMANDS[command]
    assert parser.description
    for action in parser._actions:
        assert action.help or action.metavar == "COMMAND", action


def test_every_name_has_an_entry() -> None:
    """The page of the Python interface documents `__all__`, and nothing else."""
    entries = re.findall(r"^### (\w+)$", reference.api_page(), re.MULTILINE)
    assert sorted(entries) == offload_tool.__all__


def callables() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the public functions, methods and properties of the interface."""
    for name in offload_tool.__all__:
        thing = getattr(offload_tool, name)
        if inspect.isfunction(thing):
            yield name, thing
        for attribute, value in vars(thing).items() if inspect.isclass(thing) else ():
            function = value.fget if isinstance(value, property) else value
            function = getattr(function, "__func__", function)
            if inspect.isfunction(function) and not attribute.startswith("_"):
                yield f"{name}.{attribute}", function


@pytest.mark.parametrize("name", offload_tool.__all__)
def test_docstrings(name: str) -> None:
    """Every name has a docstring of its own: a first line, and more in paragraphs."""
    text = inspect.cleandoc(getattr(offload_tool, name).__doc__ or "")
    first, *rest = text.split("\n")
    assert first.endswith((".", ":"))
    assert not first.startswith(f"{name}(")  # a dataclass without one has its signature
    assert not rest or not rest[0]


@pytest.mark.parametrize(("name", "function"), [*callables()])
def test_arguments_and_errors(name: str, function: Callable[..., object]) -> None:
    """Docstrings say what each argument is, by its name, and which errors of ours are raised."""
    text = inspect.getdoc(function) or ""
    assert text
    arguments = set(inspect.signature(function).parameters) - {"self", "cls"}
    assert [one for one in arguments if not re.search(rf"`{one}`", text)] == []
    for error in re.findall(r":raises ([\w.]+):", text):
        assert issubclass(_error(error, function), errors.OffloadError)
    if "." not in name:
        assert ":raises " in text


def _error(name: str, function: Callable[..., object]) -> type[Exception]:
    places = (function.__globals__, vars(errors))
    named = next((place[name] for place in places if name in place), None)
    named = named or getattr(offload_tool, name, None)
    assert isinstance(named, type), f"{name} cannot be found by who reads of it"
    return named


def test_every_message_has_an_entry() -> None:
    """The literal beginning of each message in the source stands on the page."""
    page = load("messages").messages_page().replace("\\", "")
    classes = [name for name in dir(errors) if name.endswith("Error")]
    raised = re.compile(rf"raise (?:{'|'.join(classes)})\(\s*f?\"([^\"{{}}\\;]{{12,}})")
    texts = [
        text
        for path in (ROOT / "offload_tool").rglob("*.py")
        for text in raised.findall(path.read_text())
    ]
    assert len(texts) > 100
    assert [text for text in texts if " ".join(text.split()) not in page] == []


def test_what_to_do() -> None:
    """A message of the form "cause; fix" has its fix below it, and each class an advice."""
    lines = load("messages").messages_page().splitlines()
    (number,) = (n for n, line in enumerate(lines) if "which no program is linked of" in line)
    assert lines[number + 1].startswith("  <br>Give the program its source")
    classes = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert {*classes} - {"OffloadError"} == {*load("messages")._ADVICE}


def test_ids() -> None:
    """Each message has an ID of its own, which another message does not change."""
    page = load("messages")
    ids = re.findall(r'^- <a id="(.*?)"', page.messages_page(), re.MULTILINE)
    assert len(ids) == sum(map(len, page.messages().values()))
    assert [one for one in ids if ids.count(one) > 1] == []
