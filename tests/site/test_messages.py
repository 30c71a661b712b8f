"""The page of messages: every error that the package raises has an entry."""

from __future__ import annotations

import re

from offload_tool import errors
from tests.conftest import ROOT
from tests.site.conftest import load


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
