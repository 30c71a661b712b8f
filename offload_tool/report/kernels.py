"""The view of kernels: sums that need no scripts, and all kernels as data.

The data is in columns; a column with one distinct value is stored as that value:

    strings     each name, path and number as text, once; the columns of text have its indices
    images      `LOCATION_KEYS` of ``list --json``, with `library` and the number of `kernels`
    kernels     the kernels of all images in order: `name` and numbers, null where unknown
    demangled   demangled C++ names by index, also for the table of changes

The keys are those of ``list --kernels --json``.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from offload_tool.operations.kernel_table import (
    COLUMNS,
    LOCATION_KEYS,
    NUMBERS,
    UNKNOWN,
    WAVES,
    WAVES_PER_SIMD,
    KernelColumns,
)
from offload_tool.operations.list_images import DeviceImage
from offload_tool.report.html import plain_table, plural
from offload_tool.report.sizes import short_names
from offload_tool.util.escape import printable

TITLES = {**{field: title for title, field in COLUMNS.items()}, WAVES_PER_SIMD: WAVES}
"""Titles of the numeric columns."""
_LONGEST = 10_000
"""Characters of a name; the longest demangled names of cuBLAS have 4,263."""
_TOP = 20
"""Rows of the tables for readers without scripts."""


class Strings:
    """Texts, to which data refers by number."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def number(self, text: str | None) -> int | None:
        """Return the number of a text, in the form of `shown_name`."""
        return None if text is None else self.texts.setdefault(shown_name(text), len(self.texts))


def shown_name(name: str) -> str:
    """Return a printable name; for a very long one, the beginning and a digest."""
    if len(name) <= _LONGEST:
        return printable(name)
    state = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{printable(name[:_LONGEST])}... ({len(name):,} characters, SHA-256 {state})"


def one_or_all(column: Sequence[object]) -> object:
    """Return a column, or its value if all entries are equal."""
    first = column[0] if column else None
    if all(value is first or value == first for value in column):
        return first
    return column


def kernel_data(columns: KernelColumns, strings: Strings) -> dict[str, object]:
    """Return the data; texts go to `strings`."""
    numbers = [strings.number(name) for name in columns.names]
    images: dict[str, object] = {
        key: one_or_all([_value(getattr(image, key), strings) for image in columns.images])
        for key in LOCATION_KEYS
    }
    locations = {_location(image): None for image in columns.images}
    shorts = short_names(locations)
    images["library"] = one_or_all([strings.number(_label(image)) for image in columns.images])
    images["short"] = one_or_all([strings.number(shorts[_location(i)]) for i in columns.images])
    return {
        "images": {**images, "kernels": columns.counts},
        "kernels": {
            "name": one_or_all([numbers[index] for index in columns.name]),
            **{
                key: one_or_all([None if number == UNKNOWN else number for number in column])
                for key, column in columns.numbers.items()
            },
        },
        "count": len(columns),
        "titles": TITLES,
    }


def demangled_texts(names: Mapping[str, str], strings: Strings) -> dict[str, str]:
    """Return the demangled `names`, by the numbers of the mangled ones."""
    return {
        str(strings.number(name)): shown_name(text) for name, text in names.items() if text != name
    }


def _value(value: str | int | None, strings: Strings) -> int | None:
    return strings.number(value) if isinstance(value, str) else value


def _location(image: DeviceImage) -> tuple[str, str | None]:
    return image.file, image.member


def _label(image: DeviceImage) -> str:
    return image.file if image.member is None else f"{image.file}({image.member})"


def kernel_tables(columns: KernelColumns, names: Mapping[str, str] | None) -> str:
    """Return the tables of sums, and the first kernel rows for readers without scripts."""
    if not len(columns):
        return ""
    texts = [shown_name(names[name] if names else name) for name in columns.names]
    libraries = {_label(image) for image in columns.images}
    pairs = zip(columns.numbers["vgpr_spills"], columns.numbers["sgpr_spills"], strict=True)
    spills = [max(vector, 0) + max(scalar, 0) for vector, scalar in pairs]
    by_target = _sums(
        columns, spills, "kernel-targets", "Target ID", lambda i: i.target_id or i.triple
    )
    parts = [by_target]
    if len(libraries) > 1:
        parts.append(_sums(columns, spills, "kernel-libraries", "Library", _label))
    image_of = [at for at, count in enumerate(columns.counts) for _ in range(count)]
    size = columns.numbers["code_size"]
    for name, title, weight in (
        ("largest-kernels", "Largest kernels", size),
        ("spilling-kernels", "Kernels that spill most", spills),
    ):
        top = sorted(range(len(columns)), key=lambda at: (-weight[at], at))[:_TOP]
        rows = [at for at in top if weight[at] > 0]
        if rows:
            table = _top(columns, name, title, rows, texts, image_of)
            parts.append(f'<div class="fallback">\n{table}</div>\n')
    return "".join(parts)


def _sums(
    columns: KernelColumns,
    spills: Sequence[int],
    name: str,
    title: str,
    group: Callable[[DeviceImage], str],
) -> str:
    """Return a table with sums over the kernels of each target ID, or library."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    size, scratch = columns.numbers["code_size"], columns.numbers["scratch"]
    start = 0
    for image, count in zip(columns.images, columns.counts, strict=True):
        row, part = sums[group(image)], slice(start, start + count)
        row[0] += count
        row[1] += sum(bytes_ for bytes_ in size[part] if bytes_ > 0)
        row[2] += sum(spilled > 0 for spilled in spills[part])
        row[3] += sum(private > 0 for private in scratch[part])
        start += count
    heads = ["Kernels", "Code (bytes)", "With spilled registers", "With scratch"]
    sorted_sums = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    rows: list[Sequence[str | int]] = [(shown_name(key), *row) for key, row in sorted_sums]
    what = "target ID" if title == "Target ID" else title.lower()
    return plain_table(
        name,
        f"By {what}",
        plural(len(rows), what).replace("librarys", "libraries"),
        [(title, "name"), *((head, "number") for head in heads)],
        rows,
    )


def _top(
    columns: KernelColumns,
    name: str,
    title: str,
    rows: Sequence[int],
    texts: Sequence[str],
    image_of: Sequence[int],
) -> str:
    shown = [key for key in NUMBERS if any(columns.numbers[key][at] != UNKNOWN for at in rows)]
    cells = []
    for at in rows:
        image = columns.images[image_of[at]]
        numbers = [columns.numbers[key][at] for key in shown]
        known = [None if number == UNKNOWN else number for number in numbers]
        cells.append((texts[columns.name[at]], image.target_id or image.triple, *known))
    return plain_table(
        name,
        title,
        f"{len(rows)} of {plural(len(columns), 'kernel')}; all of them, with JavaScript or "
        "by offload-tool list --kernels",
        [
            ("Kernel", "name"),
            ("Target ID", "name"),
            *((TITLES[key][:1].upper() + TITLES[key][1:], "number") for key in shown),
        ],
        cells,
    )
