"""The page of ``offload-tool report``: a single self-contained HTML file.

The page has its styles, scripts and data, and two libraries: plotly.js draws the chart; DataTables
sorts, filters and pages the tables. Its Content-Security-Policy forbids downloads, and allows only
the scripts and styles with the listed hashes. The page does not depend on the time or the machine:
equal inputs give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from string import Template

from offload_tool.errors import UsageError
from offload_tool.operations.diff import Comparison
from offload_tool.operations.kernel_table import KernelColumns
from offload_tool.operations.size_report import SizeReport
from offload_tool.report import views
from offload_tool.util.frozen import frozen

_SCRIPTS = ("views.js", "tables.js", "kernel.js", "chart.js")
_DEFAULT = re.compile(r"export ?\{[^}]*?([\w$]+) as default\b")
"""Where the module of itables says which of its names is DataTables."""
_SHEET = re.compile(r'if\(!document\.getElementById\("([0-9a-f]{64})"\)')
"""The styles of plotly's maps, which plotly inserts unless an element has this name."""


@frozen
class Content:
    """The content of a page."""

    paths: Sequence[str]
    sizes: SizeReport
    kernels: KernelColumns
    before: Sequence[str]
    """The paths of the older build."""
    changes: Comparison | None
    names: Mapping[str, str]
    notices: Mapping[str, Sequence[str]]
    """Lists of files and images that the page leaves out, by their titles."""


def load_libraries() -> tuple[str, str, str]:
    """Return plotly.js, DataTables as a module, and its styles; raise UsageError without them."""
    try:
        plotly = _read("plotly", "package_data/plotly.min.js")
        tables = _read("itables", "html/dt_bundle.js")
        styles = _read("itables", "html/dt_bundle.css")
        [name] = _DEFAULT.findall(tables)
    except (ImportError, OSError, ValueError) as error:
        raise UsageError(
            f"a report needs the scripts of plotly and itables: {error}; "
            "pip install --upgrade plotly itables"
        ) from error
    return plotly, f"{tables}\nglobalThis.DataTable = {name};\n", styles


def _read(package: str, path: str) -> str:
    file = distribution(package).locate_file(f"{package}/{path}")
    return Path(str(file)).read_text(encoding="utf-8")


def render_page(content: Content, libraries: tuple[str, str, str]) -> Iterator[str]:
    """Yield the HTML page piece by piece; for `libraries`, see `load_libraries`."""
    plotly, tables, styles = libraries
    modules = [_inline(tables), _inline("".join(map(_text, _SCRIPTS)))]
    plotly = _inline(plotly) if content.sizes.size else ""
    style = styles + _text("page.css")
    # plotly.js inserts an empty style element, and its rules by calls, which policies allow.
    policy = (
        f"default-src 'none'; script-src {_hashes(*modules, plotly)}; "
        f"style-src {_hashes(style, '')}; base-uri 'none'; form-action 'none'"
    )
    title = escape(views.shown(f"Device code: {', '.join(content.paths)}"))
    yield Template(_text("page.html")).substitute(policy=policy, title=title, style=style)
    data = json.dumps(_data(content), separators=(",", ":")).replace("<", r"\u003c")
    yield f'<script type="application/json" id="data">{data}</script>\n'
    for name in _SHEET.findall(plotly):
        yield f'<template id="{name}"></template>\n'
    # chart.js runs it when the chart becomes visible: that takes half a second.
    yield f'<script type="text/plain" id="plotly">{plotly}</script>\n'
    for module in modules:
        yield f'<script type="module">{module}</script>\n'
    yield "</body>\n</html>\n"


def _text(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _inline(script: str) -> str:
    """Escape end tags in a script, so that it cannot end its element; strings keep their value."""
    return script.replace("</script", r"<\/script").replace("<!--", r"<\!--")


def _hashes(*sources: str) -> str:
    """Return the hashes of scripts or styles for the Content-Security-Policy."""
    digests = (hashlib.sha256(source.encode()).digest() for source in sources)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _data(content: Content) -> dict[str, object]:
    report, found, tables = content.sizes, content.changes, views.Tables()
    views.add_sizes(report, tables)
    views.add_kernels(content.kernels, tables)
    if found is not None:
        views.add_changes(found, tables)
    demangled = {name: text for name, text in content.names.items() if text != name}
    return {
        "paths": [*map(views.shown, content.paths)],
        "totals": {
            "size": report.size,
            "stored": report.stored,
            "Device images": report.images,
            "Target IDs": len(report.targets),
            "Containers": len(report.containers),
            "Files": len(report.files),
        },
        "notes": views.notes_of(report),
        "notices": {title: [*map(views.shown, lines)] for title, lines in content.notices.items()},
        "tiles": views.chart_data(report),
        "views": tables.views,
        "before": [*map(views.shown, content.before)],
        "changes": views.change_counts(found) if found is not None else "",
        "demangled": {tables.number(name): views.shown(text) for name, text in demangled.items()},
        "texts": [*tables.texts],
    }
