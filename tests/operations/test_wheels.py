"""Third-party fat binaries: two wheels from PyPI, against LLVM 22.

They are downloaded once, into pytest's cache folder. Every image in them is compared with
the output of LLVM's tools; thinned libraries are loaded.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from offload_tool import iter_image_data, list_images
from offload_tool.containers.find import find_containers
from offload_tool.formats.kernel_info.reader import read_kernels
from offload_tool.io import InputFile
from offload_tool.operations.extract import extract_device_images
from offload_tool.operations.join import join_file
from offload_tool.operations.match import Device, match_images
from offload_tool.operations.split import split_file
from offload_tool.operations.thin import thin_file
from tests.conftest import Tool, missing, run_tool
from tests.formats.kernel_info.readelf import kernels_by_readelf
from tests.operations.fatbins import HOST, RUNTIME, RUNTIME_NAMES, load
from tests.operations.split_programs import record_faults

UNCOMPRESSED = "pennylane-lightning-amdgpu==0.45.0"
"""15 bundles in each of 2 libraries, one target."""
COMPRESSED = "jax-rocm7-plugin==0.10.2"
"""4 bundles of version 3 in 3 libraries, 27 targets."""

pytestmark = pytest.mark.llvm


@pytest.fixture(scope="module")
def wheels(request: pytest.FixtureRequest) -> Path:
    cache = request.config.cache
    assert cache is not None
    folder = cache.mkdir("wheels")
    for requirement in (UNCOMPRESSED, COMPRESSED):
        name = requirement.replace("-", "_").replace("==", "-")
        if not list(folder.glob(f"{name}-*.whl")):
            download(requirement, folder)
    return folder


def download(requirement: str, folder: Path) -> None:
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 27, 28)]
    options = ["--no-deps", "--only-binary=:all:", "--python-version=3.11", *platforms]
    command = [sys.executable, "-m", "pip", "download", "--quiet", *options, "-d", str(folder)]
    done = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        missing(f"the wheel {requirement} (pip download: {reason})")


def wheel(folder: Path, name: str) -> Path:
    (path,) = folder.glob(f"{name}-*.whl")
    return path


def libraries(path: Path, folder: Path) -> list[Path]:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return [Path(file) for file in dict.fromkeys(image.file for image in list_images(folder))]


def test_uncompressed(wheels: Path, llvm: Tool, tmp_path: Path) -> None:
    """Every entry of the uncompressed wheel equals llvm-objdump's output for its library."""
    compared = 0
    for library in libraries(wheel(wheels, "pennylane_lightning_amdgpu"), tmp_path / "x"):
        run_tool(llvm("llvm-objdump"), "--offloading", library.name, cwd=library.parent)
        for found in find_containers(library):
            for image in found.images:
                theirs = library.with_name(f"{library.name}.{found.index}.{image.id}")
                content = image.content
                ours = content.source.data[content.offset : content.offset + content.size]
                assert bytes(ours) == theirs.read_bytes()
                theirs.unlink()
                compared += 1
        assert not list(library.parent.glob(f"{library.name}.*")), "LLVM found more"
    assert compared == 2 * 15 * 2


def test_compressed(wheels: Path, llvm: Tool, tmp_path: Path) -> None:
    """Every entry of the compressed wheel equals clang-offload-bundler's output for its bundle.

    The bundles are cut out by their recorded sizes.
    """
    bundler = llvm("clang-offload-bundler")
    compared = 0
    for library in libraries(wheel(wheels, "jax_rocm7_plugin"), tmp_path / "x"):
        with InputFile(library) as file:
            for found in find_containers(library):
                bundle = tmp_path / "bundle"
                bundle.write_bytes(file.data[found.offset : found.offset + found.size])
                listed = run_tool(bundler, "-list", "-type=o", f"-input={bundle}").split()
                ids = [image.id for image in found.images]
                assert sorted(listed) == sorted(ids)
                outputs = [f"-output={tmp_path / f'out{at}'}" for at in range(len(ids))]
                targets = f"-targets={','.join(ids)}"
                run_tool(bundler, "-unbundle", "-type=o", f"-input={bundle}", targets, *outputs)
                for at, image in enumerate(found.images):
                    content = image.content
                    ours = content.source.data[content.offset : content.offset + content.size]
                    assert bytes(ours) == (tmp_path / f"out{at}").read_bytes()
                    compared += 1
    assert compared == 4 * 28


def test_kernels(wheels: Path, llvm: Tool, tmp_path: Path) -> None:
    compared = 0
    for name in ("pennylane_lightning_amdgpu", "jax_rocm7_plugin"):
        for image, data in iter_image_data(wheel(wheels, name)):
            if image.kind != "host":
                (tmp_path / "code").write_bytes(data)
                kernels = read_kernels(data)
                assert kernels == kernels_by_readelf(llvm("llvm-readelf"), tmp_path / "code")
                compared += len(kernels)
    assert compared == 567 + 526


@pytest.mark.parametrize("name", ["pennylane_lightning_amdgpu", "jax_rocm7_plugin"])
def test_wheel_as_it_is(name: str, wheels: Path, tmp_path: Path) -> None:
    """Listing and extracting from the wheel gives the same as from the unpacked files."""
    path = wheel(wheels, name)
    libraries(path, tmp_path / "x")
    packed, unpacked = list_images(path), list_images(tmp_path / "x")
    assert sorted((i.member or "", i.id, i.size, i.stored_size) for i in packed) == sorted(
        (str(Path(i.file).relative_to(tmp_path / "x")), i.id, i.size, i.stored_size)
        for i in unpacked
    )
    first = extract_device_images(path, tmp_path / "1")
    second = extract_device_images(tmp_path / "x", tmp_path / "2")
    assert sorted(image.path.read_bytes() for image in first) == sorted(
        image.path.read_bytes() for image in second
    )
    device = Device.parse("gfx942:sramecc+:xnack-")
    assert {match.ids for match in match_images(path, device)} == {
        ("hipv4-amdgcn-amd-amdhsa--gfx942",)
    }


def standin(library: Path, llvm: Tool, folder: Path) -> None:
    """Build stand-ins for a library's ROCm libraries, with the stand-in runtime's functions."""
    dynamic = run_tool(llvm("llvm-readelf"), "-d", library)
    needed = re.findall(r"\[(lib(?:amdhip|hip|roc)[^]]*)\]", dynamic)
    undefined = run_tool(llvm("llvm-nm"), "-D", "--undefined-only", library)
    versions: dict[str, list[str]] = {}
    for word in (line.split()[-1] for line in undefined.splitlines()):
        function, _, version = word.partition("@")
        if function.startswith(("hip", "roc", "__hip")):
            versions.setdefault(version, []).append(function)
    others = {name for names in versions.values() for name in names} - RUNTIME_NAMES
    source, script = folder / "standin.c", folder / "standin.map"
    source.write_text(
        RUNTIME + "".join(f"int {name}() {{ return 100; }}\n" for name in sorted(others))
    )
    nodes = {version: names for version, names in versions.items() if version}
    script.write_text(
        "".join(f"{version} {{ global: {'; '.join(n)}; }};\n" for version, n in nodes.items())
    )
    for name in needed:
        flags = [f"-Wl,--version-script={script}"] if nodes else []
        command = [llvm("clang"), "-w", "-shared", "-fPIC", "-fuse-ld=lld", source, *flags]
        run_tool(*command, f"-Wl,-soname,{name}", "-o", folder / name)


@pytest.mark.parametrize(
    ("name", "keep", "bundles"),
    [("pennylane_lightning_amdgpu", HOST, 30), ("jax_rocm7_plugin", "gfx90a:xnack+", 4)],
)
def test_thinned_libraries_load(
    name: str, keep: str, bundles: int, wheels: Path, llvm: Tool, tmp_path: Path
) -> None:
    """Thinned libraries are smaller, load, and register bundles without the other images.

    All images of the first wheel are for one target, so only its host entries stay.
    """
    smaller = registered = 0
    for library in libraries(wheel(wheels, name), tmp_path / "x"):
        stubs = tmp_path / library.stem
        stubs.mkdir()
        standin(library, llvm, stubs)
        path = f"{stubs}:{tmp_path / 'x' / 'pennylane_lightning_amdgpu.libs'}"
        before = load(library, LD_LIBRARY_PATH=path)
        whole = library.with_name(f"whole-{library.name}")
        library.rename(whole)
        report = thin_file(whole, library, keep=[Device.parse(keep)])
        smaller += report.size_before - report.size_after
        after = load(library, LD_LIBRARY_PATH=path)
        assert after[-1] == before[-1] == "loaded"
        images = list_images(library)
        assert {i.target_id for i in images} == {"", "gfx90a"} - (
            {"gfx90a"} if keep == HOST else set()
        )
        if keep == HOST:
            assert after[:-1] == [f"{HOST} 0 0;"] * (len(before) - 1)
            listed = run_tool(
                llvm("llvm-objdump"), "--offloading", library.name, cwd=library.parent
            )
            assert listed.count("Extracting offload bundle") == listed.count(HOST) == 15
        else:
            data = library.read_bytes()
            starts = {i.container_offset or 0: i.container_size for i in images}
            contents = [data[start : start + size] for start, size in starts.items()]
            assert after[:-1] == [f"CCOB {len(c)} {sum(c)}" for c in contents]
        registered += len(after) - 1
    assert registered == bundles
    assert smaller > 100_000


@pytest.mark.parametrize("name", ["pennylane_lightning_amdgpu", "jax_rocm7_plugin"])
def test_split_and_joined(name: str, wheels: Path, tmp_path: Path) -> None:
    path = wheel(wheels, name)
    split_file(path, tmp_path / "apart")
    host = tmp_path / "apart" / path.name
    assert list_images(host) == []
    parts = sorted(part for part in host.parent.iterdir() if part != host)
    join_file(host, parts, tmp_path / path.name)
    for made in (host, *parts, tmp_path / path.name):
        assert record_faults(made) == []
    before, after = (
        [
            (found.member, sorted((image.target_id, bytes(image.content.view())) for image in code))
            for found in find_containers(file)
            if (code := [image for image in found.images if image.kind != "host"])
        ]
        for file in (path, tmp_path / path.name)
    )
    assert before == after
