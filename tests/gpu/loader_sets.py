"""Fat binaries of random images, and what `match` says that each device loads of them."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from offload_tool import Device, match_images, thin_file

Images = dict[str, tuple[Path, int]]
"""By processor: the file, and the number that its kernel writes, and its variable has."""

COUNT = 120
SEED = 20261126
PROCESSORS = ("75", "80", "86", "87", "88", "89", "90", "90a", "100", "100a", "100f", "103")
PROCESSORS += ("103a", "103f", "110", "110a", "110f", "120", "120a", "120f", "121", "121a", "121f")
VIRTUAL = ("75", "80", "86", "89", "90", "90a", "100", "100f", "103", "120", "120f")
LATER = ("88", "110", "110a", "110f")
"""Processors that PTX knows since version 9.0."""

_PTX = """\
.version {version}
.target sm_{name}
.address_size 64
.visible .global .align 4 .u32 number = {number};
.visible .entry which(.param .u64 out)
{{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, {number};
    st.global.u32 [%rd2], %r1;
    ret;
}}
"""


def write_images(find: Callable[[str], Path], folder: Path, *flags: str) -> Images:
    """Write an image for each processor; return its file, and the number that its kernel writes."""
    images = {}
    for index, name in enumerate(PROCESSORS):
        version = "9.0" if name in LATER else "8.8"
        cubin, ptx = folder / f"{name}.cubin", folder / f"{name}.ptx"
        ptx.write_text(_PTX.format(version=version, name=name, number=index + 1))
        assemble = [find("ptxas"), *flags, f"-arch=sm_{name}", ptx, "-o", cubin]
        subprocess.run(assemble, check=True)
        images[f"sm_{name}"] = (cubin, index + 1)
        if name in VIRTUAL:
            ptx.write_text(_PTX.format(version=version, name=name, number=index + 101))
            images[f"compute_{name}"] = (ptx, index + 101)
    return images


def write_fatbin(
    find: Callable[[str], Path], whole: Path, images: Images, names: Sequence[str], *flags: str
) -> None:
    """Write a fat binary of some images."""
    options = [
        f"--image3=kind={'elf' if name.startswith('sm') else 'ptx'},"
        f"sm={name.partition('_')[2]},file={images[name][0]}"
        for name in names
    ]
    subprocess.run([find("fatbinary"), "-64", f"--create={whole}", *options, *flags], check=True)


def write_sets(
    find: Callable[[str], Path], folder: Path, devices: Sequence[str], thinned: Sequence[str]
) -> None:
    """Write ``sets.bin``, the fat binaries one after the other, and ``sets.json`` about them.

    `find` returns NVIDIA's ``fatbinary`` and ``ptxas``. Each set is thinned for the devices
    `thinned` that it serves, which load of the result what they load of the whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    images = write_images(find, folder)
    rng = random.Random(SEED)
    rows, blob, places = [], bytearray(), {}

    def place(path: Path) -> tuple[int, int]:
        data = path.read_bytes()
        if data not in places:
            blob.extend(b"\0" * (-len(blob) % 16))
            places[data] = (len(blob), len(data))
            blob.extend(data)
        return places[data]

    whole, thin = folder / "set.fatbin", folder / "thin.fatbin"
    for number in range(COUNT):
        names = rng.sample(sorted(images), rng.randint(1, 6))
        write_fatbin(find, whole, images, names, *(["--compress-all"] if number % 2 else []))
        expected = {each: _loaded(whole, each, images) for each in devices}
        rows.append({"name": "+".join(names), "places": {"": place(whole)}, "expected": expected})
        thin_places = {}
        for each in (each for each in thinned if expected[each] is not None):
            thin_file(whole, thin, keep=[Device.parse(each)], keep_ptx=bool(number % 3))
            thin_places[each] = place(thin)
        rows.append(
            {
                "name": f"thin {'' if number % 3 else '--no-ptx '}of {'+'.join(names)}",
                "places": thin_places,
                "expected": {each: expected[each] for each in thin_places},
            }
        )
    for path in folder.iterdir():
        path.unlink()
    (folder / "sets.bin").write_bytes(blob)
    (folder / "sets.json").write_text(json.dumps(rows, separators=(",", ":")))


def _loaded(path: Path, device: str, images: Images) -> int | None:
    """Return the number of the image that `match` names, None if it names none."""
    (found,) = match_images(path, Device.parse(device))
    if not found.ids:
        return None
    (name,) = found.ids
    return images[name.rpartition("-")[2]][1]
