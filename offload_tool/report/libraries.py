"""The libraries that are copied into each page, from optional packages."""

from __future__ import annotations

import re
from importlib.metadata import distribution
from pathlib import Path

from offload_tool.errors import UsageError

_DEFAULT = re.compile(r"export ?\{[^}]*?([\w$]+) as default\b")
"""Where the module of itables says which of its names is DataTables."""


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
