"""Faults in copies of packed programs: what run.py is to name, each by its case."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.gpu.cases import CUDA_TARGETS, VERSION

MARK = struct.pack("<i", 0x0FF10AD5)
_NEWEST = int(CUDA_TARGETS[-1][3:])
_ENTRY = struct.Struct("<HHIQ12xI")
_MAGIC = b"\x50\xed\x55\xba\x01\x00\x10\x00"


def _fat_binaries(data: bytes) -> Iterator[range]:
    at = -1
    while (at := data.find(_MAGIC, at + 1)) >= 0:
        yield range(at, at + 16 + int.from_bytes(data[at + 8 : at + 16], "little"))


def swap_images(data: bytes, _unit: str) -> bytes:
    """Say of the images for the oldest target that they are for the newest, and the reverse."""
    changed = bytearray(data)
    for fat_binary in _fat_binaries(data):
        places, at = {}, fat_binary.start + 16
        while at < fat_binary.stop:
            _, _, header, size, target = _ENTRY.unpack_from(data, at)
            places[at + 28] = target
            at += header + size
        oldest, newest = min(places.values(), default=0), max(places.values(), default=0)
        for place, target in places.items():
            swapped = {oldest: newest, newest: oldest}.get(target, target)
            struct.pack_into("<I", changed, place, swapped)
    return bytes(changed)


def mistake(data: bytes, _unit: str) -> bytes:
    """Make the newest image one that was compiled with the macros of another target."""
    now = struct.pack("<ii", _NEWEST, VERSION)
    return data.replace(MARK + now, MARK + struct.pack("<ii", 80, VERSION))


def unregister(data: bytes, unit: str) -> bytes:
    """Change the kernel's name where the host registers it: outside of all images."""
    name, images = f"_Z{len(unit)}{unit}Pi\0".encode(), list(_fat_binaries(data))
    changed, at = bytearray(data), -1
    while (at := data.find(name, at + 1)) >= 0:
        if not any(at in each for each in images):
            changed[at : at + len(name)] = name.replace(b"Pi", b"Pl")
    return bytes(changed)


def age(data: bytes, _unit: str) -> bytes:
    """Put into the newest image the version of an older source."""
    now, older = (struct.pack("<ii", _NEWEST, number) for number in (VERSION, VERSION - 1))
    return data.replace(MARK + now, MARK + older)


FAULTS: tuple[tuple[str, Callable[[bytes, str], bytes]], ...] = (
    ("swapped images", swap_images),
    ("a wrong image", mistake),
    ("an unregistered kernel", unregister),
    ("a stale image", age),
)
PLANTED = (  # the case, the file that is changed, its unit
    ("cuda/images", "build/cuda/images/images", "images"),
    ("cuda/shared", "build/cuda/shared/libfirst.so", "first"),
    ("cuda/plugins", "build/cuda/plugins/one/libplugin.so", "plugin"),
    ("cuda/linked", "build/cuda/linked/linked", "linked"),
    ("cuda/module", "build/cuda/module/module.fatbin", "module"),
    ("cuda/static", "build/cuda/static/static", "first"),
)


def plant(packed: Path, output: Path) -> list[str]:
    """Copy cases of a packed folder, each with one fault; return their names."""
    content = json.loads((packed / "cases.json").read_text())
    rows = {row["name"]: row for row in content["cases"]}
    planted: list[dict[str, Any]] = []
    output.mkdir(parents=True)
    shutil.copy2(packed / "run.py", output)
    for name, file, unit in PLANTED:
        for fault, change in FAULTS if name in rows else ():
            data = (packed / file).read_bytes()
            changed = change(data, unit)
            if changed == data:  # a fat binary has no host code, a plugin no version
                continue
            folder = str(len(planted))
            place = output / folder / file
            shutil.copytree((packed / file).parent, place.parent)
            place.write_bytes(changed)
            for other in rows[name]["expected"]["sm_90"]["command"]:
                path = other.replace("{here}/", "")
                if (
                    "{here}/" in other
                    and path != "run.py"
                    and not (output / folder / path).exists()
                ):
                    (output / folder / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(packed / path, output / folder / path)
            text = json.dumps(rows[name]).replace("{here}/", f"{{here}}/{folder}/")
            row = json.loads(text.replace(f"{{here}}/{folder}/run.py", "{here}/run.py"))
            planted.append({**row, "name": f"{name} with {fault}"})
    (output / "cases.json").write_text(json.dumps({**content, "cases": planted}, indent=1))
    return [row["name"] for row in planted]
