"""Wheels of device code: their names, and the metadata that links them to the host's wheel.

::

    torch-2.9-T.whl                     METADATA, in addition:
                                          Provides-Extra: device-gfx942
                                          Requires-Dist: torch-device-gfx942 == 2.9;
                                            extra == "device-gfx942"
                                          Provides-Extra: device-all
                                          Requires-Dist: ... ; extra == "device-all"
    torch_device_gfx942-2.9-T.whl       torch/.kpack/torch_gfx942.kpack, ...
                                        METADATA: Requires-Dist: torch == 2.9
                                        WHEEL: as that of torch

Target IDs of one processor share a wheel (``gfx90a`` and ``gfx90a:xnack+``), because pip does not
know the settings of a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from offload_tool.errors import FormatError, UsageError
from offload_tool.formats.kpack.marker import PLACEHOLDER
from offload_tool.formats.wheel import (
    RECORD,
    WheelName,
    digest,
    header,
    in_file_name,
    new_record,
    with_headers,
)
from offload_tool.formats.zip_writer import new_row, pack_member, plan_zip
from offload_tool.io.spool import Spool
from offload_tool.io.write_plan import FilePlan
from offload_tool.operations.tree import TreeFile, WheelTree

_STORED, _DEFLATED = 0, 8
_METADATA_VERSION = "2.1"


class DeviceWheels:
    """The device wheels of a host wheel; raise FormatError if that has no METADATA or WHEEL."""

    def __init__(
        self,
        tree: WheelTree,
        wheel: WheelName,
        prefix: str | None = None,
        requires: Sequence[str] = (),
    ) -> None:
        self.tree = tree
        self.wheel = wheel
        self.file, self.metadata = _read(tree, wheel, "METADATA")
        _, self.tags = _read(tree, wheel, "WHEEL")
        self.label = tree.path(self.file.name)
        self.name = header(self.metadata, "Name", path=self.label)
        self.version = header(self.metadata, "Version", path=self.label)
        self.prefix = f"{self.name}-device" if prefix is None else prefix
        if not in_file_name(self.prefix).replace("_", "").isalnum():
            raise UsageError(f"expected letters, digits and - in a prefix, found {self.prefix!r}")
        self.requires = requires

    def host_metadata(self, bundles: Sequence[str]) -> tuple[TreeFile, FilePlan]:
        """Return the file and new content of the host wheel's METADATA."""
        rows = list(device_headers(self.prefix, self.version, bundles))
        data = with_headers(self.metadata, rows, path=self.label)
        return self.file, FilePlan.of([data])

    def plan(
        self, bundle: str, archives: Mapping[str, FilePlan], spool: Spool
    ) -> tuple[str, FilePlan]:
        """Plan the wheel with `archives`, keyed by path; return its file name and plan."""
        name = f"{self.prefix}-{bundle}"
        wheel = self.wheel._replace(name=in_file_name(name))
        rows = [
            ("Metadata-Version", _METADATA_VERSION),
            ("Name", name),
            ("Version", self.version),
            ("Summary", f"Device code of {self.name} for {bundle}"),
            ("Requires-Dist", f"{self.name} == {self.version}"),
            *(("Requires-Dist", text.replace(PLACEHOLDER, bundle)) for text in self.requires),
        ]
        metadata = "".join(f"{key}: {value}\n" for key, value in rows).encode()
        files = dict(archives)
        files[f"{wheel.dist_info}/METADATA"] = FilePlan.of([metadata])
        files[f"{wheel.dist_info}/WHEEL"] = FilePlan.of([self.tags])
        digests = {path: digest(plan.chunks(mapped=False)) for path, plan in files.items()}
        record = f"{wheel.dist_info}/{RECORD}"
        files[record] = FilePlan.of([new_record(digests, record)])
        members = []
        for path, plan in files.items():
            row = new_row(path, 0o644)
            row.compress_type = _STORED if path in archives else _DEFLATED
            members.append(pack_member(spool, row, plan))
        return str(wheel), plan_zip(members)


def device_headers(prefix: str, version: str, bundles: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the METADATA headers that make a host wheel depend on device code of `bundles`."""
    extras = [(f"device-{bundle}", [bundle]) for bundle in bundles]
    for extra, wanted in [*extras, ("device-all", list(bundles))]:
        yield "Provides-Extra", extra
        for bundle in wanted:
            yield "Requires-Dist", f'{prefix}-{bundle} == {version}; extra == "{extra}"'


def _read(tree: WheelTree, wheel: WheelName, name: str) -> tuple[TreeFile, bytes]:
    wanted = f"{wheel.dist_info}/{name}".lower()
    for file in tree.files:
        if file.name.lower() == wanted:
            with tree.open(file, always=True) as location:
                if location is not None:
                    return file, bytes(location.source.data)
    raise FormatError(f"expected {wheel.dist_info}/{name} in the wheel", path=tree.label)
