"""The site of these pages: ``sphinx-build -n -W docs build/site``."""

from __future__ import annotations

import importlib.metadata
import re

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "Offload"
copyright = "the authors of Offload"  # noqa: A001 (Sphinx's name)
version = release = importlib.metadata.version("offload-tool")
extensions = ["myst_parser", "sphinx_copybutton"]
copybutton_prompt_text = "$ "
exclude_patterns = ["*.py"]
smartquotes = False  # --target is to stay that
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Offload"
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_dark_style = "github-dark"
html_show_sphinx = False
html_copy_source = False

_NAMED_BLOCK = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Show the names of files, in pages and in what they include."""
    app.connect("source-read", _show_file_names)
    app.connect("include-read", lambda app, _, page, text: _show_file_names(app, page, text))
    app.add_lexer("ninja", TextLexer)  # Pygments has none


def _show_file_names(app: Sphinx, page: str, source: list[str]) -> None:
    """Show the name of a file above its block: ``cpp saxpy.hip`` behind the fence."""
    del app, page
    source[0] = _NAMED_BLOCK.sub(r"```{code-block} \1\n:caption: \2\n", source[0])
