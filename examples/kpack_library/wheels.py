"""Wheels of what the build has made: one of host code, one for each GPU's device code.

`pip install "measure[device-gfx942]"` installs the host code and that of one GPU; the archives
are laid into the folder of the host's package, where the library looks for them.
"""

import base64
import hashlib
import sysconfig
import zipfile
from pathlib import Path

VERSION = "1.0"
TAG = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


def device_name(archive):
    """Name the distribution of an archive, `measure_gfx90a:xnack+.kpack`: features share one."""
    return "measure-device-" + Path(archive).stem.partition("_")[2].partition(":")[0]


def file_name(name):
    """Name a distribution's wheel."""
    return f"{name.replace('-', '_')}-{VERSION}-{TAG}.whl"


def write_host(target, source, env):
    """Write the wheel of programs and libraries; `DEVICES` are the distributions of device code."""
    extras = []
    for name in env["DEVICES"]:
        extra = name.removeprefix("measure-")
        extras += [
            f"Provides-Extra: {extra}",
            f'Requires-Dist: {name}=={VERSION}; extra == "{extra}"',
        ]
    _write(target[0], "measure", extras, {f"measure/{_last_two(node)}": node for node in source})


def write_device(target, source, env):  # noqa: ARG001 - SCons gives all three
    """Write the wheel of one GPU's archives."""
    name = device_name(source[0].name)
    files = {f"measure/{_last_two(node)}": node for node in source}
    _write(target[0], name, [f"Requires-Dist: measure=={VERSION}"], files)


def _last_two(node):
    return "/".join(Path(str(node)).parts[-2:])


def _write(target, name, lines, files):
    """Write a wheel: the same bytes for the same files."""
    info = f"{name.replace('-', '_')}-{VERSION}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {VERSION}", *lines, ""]
    wheel = [
        "Wheel-Version: 1.0",
        "Generator: example",
        "Root-Is-Purelib: false",
        f"Tag: {TAG}",
        "",
    ]
    members = {path: Path(str(node)).read_bytes() for path, node in sorted(files.items())}
    members[f"{info}/METADATA"] = "\n".join(metadata).encode()
    members[f"{info}/WHEEL"] = "\n".join(wheel).encode()
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in members.items()]
    record = f"{info}/RECORD"
    members[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    with zipfile.ZipFile(str(target), "w", zipfile.ZIP_DEFLATED) as out:
        for path, data in members.items():
            entry = zipfile.ZipInfo(path)  # of 1980, as the build's time is nobody's business
            entry.external_attr = (0o100755 if path.startswith("measure/bin/") else 0o100644) << 16
            out.writestr(entry, data, zipfile.ZIP_DEFLATED)


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
