"""The page of ``offload-tool report``: a single self-contained HTML file.

Styles, scripts and the plotting library are in the page. Its Content-Security-Policy forbids
downloads, and allows only the scripts and styles with the listed hashes. Sizes and sums are
complete without scripts. Scripts make tables sortable, draw the picture, and show the tables of all
kernels and changes, which are data in the page. The page does not depend on the time or the
machine: equal inputs give equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from string import Template
from typing import TYPE_CHECKING

from offload_tool.errors import OffloadError
from offload_tool.operations.kernel_table import KernelColumns
from offload_tool.operations.size_report import SizeReport
from offload_tool.report.changes import change_data, change_tables
from offload_tool.report.html import data_script, digest, escaped, inline, package_text, plural
from offload_tool.report.kernels import (
    Strings,
    demangled_texts,
    kernel_data,
    kernel_tables,
)
from offload_tool.report.sizes import (
    colors_of,
    notes_of,
    picture_data,
    picture_summary,
    size_tables,
    totals_of,
)
from offload_tool.util.frozen import frozen

if TYPE_CHECKING:
    from offload_tool.operations.diff import Comparison

_SCRIPTS = (
    "views.js",
    "sizes.js",
    "elements.js",
    "filters.js",
    "table.js",
    "kernels.js",
    "changes.js",
)
_STYLE = re.compile("<style>(.*?)</style>")
_SHEET = re.compile(r'if\(!document\.getElementById\("([0-9a-f]{64})"\)')
"""The styles of plotly's maps, which plotly inserts unless an element has this name."""
_MOST_NOTES = 100
"""Number of lines to print; the rest are counted."""


@frozen
class Content:
    """The content of a page."""

    paths: Sequence[str]
    """The paths that the user gave."""
    sizes: SizeReport
    problems: Sequence[OffloadError]
    """Errors of unreadable files."""
    intermediates: Sequence[str]
    """Files not counted, because later files of the build contain their images."""
    kernels: KernelColumns
    unread: Sequence[str]
    """Reasons why images list no kernels, or have unreadable ones."""
    before: Sequence[str]
    """The paths of the older build."""
    changes: Comparison | None
    uncompared: Sequence[str]
    """Files and images compared only by size, with reasons."""
    names: Mapping[str, str] | None
    """Demangled names of all kernels."""


def render_page(content: Content, *, library: str) -> Iterator[str]:
    """Yield the HTML page piece by piece; `library` is the source of plotly.js."""
    report = content.sizes
    colors = colors_of(report)
    first = inline(package_text("first.js"))
    script = inline("".join(map(package_text, _SCRIPTS)))
    plotly = inline(library) if report.size else ""
    every = (first, script, plotly) if plotly else (first, script)
    scripts = " ".join(f"'sha256-{digest(code)}'" for code in every)
    style = package_text("page.css")
    # plotly.js inserts an empty style element, and its rules by calls, which policies allow.
    allowed = (style, "", *_STYLE.findall(package_text("picture.html")))
    styles = " ".join(f"'sha256-{digest(code)}'" for code in allowed)
    policy = f"default-src 'none'; script-src {scripts}; style-src {styles}"
    picture = Template(package_text("picture.html")).substitute(summary=picture_summary(report))
    yield Template(package_text("page.html")).substitute(
        policy=f"{policy}; base-uri 'none'; form-action 'none'",
        title=escaped(f"Device code: {', '.join(content.paths)}"),
        first=f"<script>{first}</script>",
        style=f"<style>{style}</style>",
        inputs="\n".join(map(escaped, content.paths)),
        views=_links(content),
        problems=_notice(
            f"Not counted, because broken or unreadable: {plural(len(content.problems), 'file')}",
            list(map(str, content.problems)),
        )
        + _notice(
            "Not counted, because later files of the build have the same images: "
            f"{plural(len(content.intermediates), 'file')}",
            content.intermediates,
            is_folded=True,
        ),
        totals=totals_of(report),
        picture=picture if report.size else "<p>There are no bytes of device code.</p>\n",
        tables=size_tables(report, colors),
        kernels=_kernels(content),
        changes=_changes(content),
        notes=notes_of(report),
    )
    yield picture_data(report, colors)
    strings = Strings()
    data = {}
    if len(content.kernels):
        data["kernels"] = kernel_data(content.kernels, strings)
    if content.changes and content.changes.kernels:
        data["changes"] = change_data(content.changes, strings)
    for name, values in data.items():
        yield data_script(f"{name}-data", values)
    if data and content.names:
        yield data_script("demangled", demangled_texts(content.names, strings))
    if data:
        yield data_script("strings", list(strings.texts))
    for name in _SHEET.findall(plotly):
        yield f'<template id="{name}"></template>\n'
    if plotly:  # sizes.js runs it when the picture becomes visible: that takes half a second
        yield f'<script type="text/plain" id="plotly">{plotly}</script>\n'
    yield f"<script>{script}</script>\n"
    yield "</body>\n</html>\n"


def _links(content: Content) -> str:
    """Return links between the views, if there are several."""
    views = [("sizes", "Sizes")]
    if _has_kernels(content):
        views.append(("kernels", f"Kernels ({len(content.kernels):,})"))
    if content.changes is not None:
        views.append(("changes", "Changes"))
    if len(views) == 1:
        return ""
    links = "".join(f'<a href="#{name}">{title}</a>\n' for name, title in views)
    return f'<nav class="views" aria-label="Views">\n{links}</nav>\n'


def _has_kernels(content: Content) -> bool:
    return bool(len(content.kernels) or content.unread)


def _kernels(content: Content) -> str:
    if not _has_kernels(content):
        return ""
    columns = content.kernels
    title = "Images that list no kernels, or none that can be read"
    count = plural(len(columns), "kernel")
    images = plural(len(columns.images), "device image")
    return (
        '<section class="view" id="kernels" aria-labelledby="kernels-heading">\n'
        '<h2 id="kernels-heading" tabindex="-1">Kernels</h2>\n'
        f"<p>{count} in {images}.</p>\n"
        f"{_notice(f'{title}: {len(content.unread):,}', content.unread)}"
        '<div id="all-kernels"></div>\n'
        f"{kernel_tables(columns, content.names)}</section>\n"
    )


def _changes(content: Content) -> str:
    if content.changes is None:
        return ""
    before = "\n".join(map(escaped, content.before))
    kernels = "" if not content.changes.kernels else '<div id="all-changes"></div>\n'
    title = "Compared by size alone, or not at all"
    return (
        '<section class="view" id="changes" aria-labelledby="changes-heading">\n'
        '<h2 id="changes-heading" tabindex="-1">Changes</h2>\n'
        f'<p class="inputs">Before: {before}</p>\n'
        f"{_notice(f'{title}: {len(content.uncompared):,}', content.uncompared)}"
        f"{change_tables(content.changes, content.names)}"
        f"{kernels}</section>\n"
    )


def _notice(title: str, lines: Sequence[str], *, is_folded: bool = False) -> str:
    if not lines:
        return ""
    shown = list(lines[:_MOST_NOTES])
    if len(lines) > _MOST_NOTES:
        shown.append(f"and {len(lines) - _MOST_NOTES:,} more")
    items = "".join(f"<li>{escaped(line)}</li>\n" for line in shown)
    outer, inner = ("details", "summary") if is_folded else ("div", "p")
    heading = f"<{inner}>{title}</{inner}>"
    return f'<{outer} class="notice">\n{heading}\n<ul>\n{items}</ul>\n</{outer}>\n'
