"""The site of these pages and of the reference: ``sphinx-build -n -W docs build/site``."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from messages import messages_page
from pygments.lexers.special import TextLexer
from reference import api_page, builders_page, commands_page
from sphinx.application import Sphinx

project = "Offload"
copyright = "the authors of Offload"  # noqa: A001 (Sphinx's name)
version = release = importlib.metadata.version("offload-tool")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
copybutton_prompt_text = "$ "
exclude_patterns = ["*.py"]
smartquotes = False  # --target is to stay that
default_role = "py:obj"  # of `names` in docstrings: a link, where there is such a thing
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # functions have addresses, which are others each time
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]
nitpick_ignore_regex = [
    ("py:.*", r"(?!offload_tool\.).*"),  # other libraries, and arguments
    ("py:obj", r"offload_tool\.[a-z_]+\.[a-z_.]+"),  # modules, which the reference leaves out
    ("py:class", r"offload_tool\.containers\.open_bundle\.OpenedBundle"),  # for the drop-ins alone
]
html_theme = "furo"
html_title = "Offload"
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_dark_style = "github-dark"
html_show_sphinx = False
html_copy_source = False

_NAMED_BLOCK = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
_GENERATED = {
    "api": api_page,
    "builders": builders_page,
    "commands": commands_page,
    "messages": messages_page,
}
"""Pages that go on with what is made from the code."""


def setup(app: Sphinx) -> None:
    """Connect what is generated to its pages."""
    app.connect("source-read", _add_generated)
    app.connect("env-get-outdated", lambda *_: [*_GENERATED])  # the code may have changed
    app.connect("source-read", _show_file_names)
    app.connect("include-read", lambda app, _, page, text: _show_file_names(app, page, text))
    app.connect("autodoc-process-bases", _leave_out_private_bases)
    app.add_lexer("ninja", TextLexer)  # Pygments has none


def _show_file_names(app: Sphinx, page: str, source: list[str]) -> None:
    """Show the name of a file above its block: ``cpp saxpy.hip`` behind the fence."""
    del app, page
    source[0] = _NAMED_BLOCK.sub(r"```{code-block} \1\n:caption: \2\n", source[0])


def _leave_out_private_bases(
    app: Sphinx, name: str, class_: type, options: object, bases: list[type]
) -> None:
    """Let the reference name those bases of a class that it describes."""
    del app, name, class_, options
    bases[:] = [base for base in bases if not base.__name__.startswith("_")] or [object]


def _add_generated(_: Sphinx, page: str, source: list[str]) -> None:
    if page in _GENERATED:
        source[0] += _GENERATED[page]()
