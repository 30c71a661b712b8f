"""Programs with HIP's real headers build with the README's SConstruct and register all they have.

No GPU is needed: the real libamdhip64 takes registrations without one, and a preloaded library
counts them. What clang's own build of the same program registers is what ours must register.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from offload_tool import BundleEntryID, extract_device_images, list_images
from tests.conftest import ROOT, run_tool
from tests.test_rocm import look_up
from tests.toolchains.conftest import Installed, device_libraries
from tests.toolchains.programs import FOLDER, PROGRAMS, Program
from tests.zygote import run_scons

pytestmark = pytest.mark.toolchains

README = (ROOT / "README.md").read_text()
BLOCK = re.search(
    r"^```python SConstruct\n(env = Environment\(.*?^\)\n)(.*?)^```$", README, re.M | re.S
)
SOURCES = dict(re.findall(r"^```cpp (\S+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
Runner = Callable[[Path], tuple[str, list[list[str]]]]


def build(program: Program, installed: Installed) -> Path:
    """Build a program with scons, once for all tests; return its folder."""
    folder = installed.folder / program.name
    if folder.exists():
        return folder
    assert BLOCK is not None
    if program.lines:
        shutil.copytree(program.folder, folder)
        shutil.copy(FOLDER / "device.h", folder)
    else:
        folder.mkdir()
        for name, text in SOURCES.items():
            (folder / name).write_text(text)
    (folder / "SConstruct").write_text(BLOCK[1] + (program.lines or BLOCK[2]))
    (folder / "built").write_text(scons(folder, installed))
    return folder


def build_own(program: Program, installed: Installed) -> Path:
    """Build a program with one command of the compiler, for gfx906, once for all tests."""
    folder = build(program, installed)
    own = folder / "own"
    if not own.exists():
        flags = [*device_libraries(), "--offload-arch=gfx906", "-O1"]
        args = [*installed.clang, *flags, *program.own, "-o", own, "-lamdhip64"]
        run_tool(*args, cwd=folder, env=installed.environment)
    return own


def scons(folder: Path, installed: Installed) -> str:
    done = run_scons(["-Q", "-j2"], cwd=folder, env=installed.environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def calls(registered: list[list[str]]) -> Counter[str]:
    return Counter(call[0] for call in registered)


def names(registered: list[list[str]]) -> list[tuple[str, str]]:
    """Return the sorted (sort, name) of what was registered.

    The name of a static variable ends in a number that depends on the path of its source.
    """
    return sorted(
        (call[0], re.sub(r"(\.static\.|__static__|\.intern\.|__intern__).*", ".static", call[2]))
        for call in registered
        if call[0] not in {"binary", "module"}
    )


def kernels(files: Iterable[Path], folder: Path) -> dict[str, set[str]]:
    """Return the kernels that code objects of these files have, by target ID.

    Each kernel has a descriptor called ``<kernel>.kd``. The images are unpacked into `folder`.
    """
    found: dict[str, set[str]] = {}
    for file in files:
        for image in extract_device_images(file, folder / file.name):
            with image.path.open("rb") as content:
                symbols = ELFFile(content).get_section_by_name(".dynsym").iter_symbols()
                names = {name for symbol in symbols if (name := str(symbol.name)).endswith(".kd")}
            target = str(BundleEntryID.parse(image.id).target_id)
            found.setdefault(target, set()).update(name.removesuffix(".kd") for name in names)
    return found


def test_readme_names_no_compiler() -> None:
    """The SConstruct that the programs use says nothing of a compiler or of where ROCm is."""
    assert BLOCK is not None
    assert not re.search(r"CLANG|ROCM|_PATH\b|_LIB", BLOCK[1])
    assert "OFFLOAD_ARCH=" in BLOCK[1]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program_registers_what_it_has(program: Program, installed: Installed, run: Runner) -> None:
    """It builds without a hint, starts with the real runtime, and registers each thing once."""
    folder = build(program, installed)
    chosen = re.findall(r"^offload: using clang (\S+)", (folder / "built").read_text(), re.M)
    assert len(chosen) == 1
    assert chosen[0].startswith(installed.version)

    output, registered = run(folder / program.name)
    assert "no HIP device" in output or ": 0 wrong" in output
    found = calls(registered)
    assert found.keys() == program.calls.keys()
    for sort, count in program.calls.items():
        assert found[sort] == count or (count == -1 and found[sort] > 0), registered
    assert len(names(registered)) == len(set(names(registered)))
    assert [call for call in registered if call[0] == "binary" and "unknown" in call] == []
    assert [call for call in registered if call[0] != "module" and call[1] == "-1"] == []


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.own], ids=lambda program: program.name
)
def test_program_registers_what_clang_would(
    program: Program, installed: Installed, run: Runner
) -> None:
    """Kernels and variables are those of the compiler's own build, by their names."""
    folder = build(program, installed)
    own = build_own(program, installed)
    assert names(run(folder / program.name)[1]) == names(run(own)[1])


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.calls.get("function")], ids=lambda program: program.name
)
def test_every_image_has_every_kernel(
    program: Program, installed: Installed, run: Runner, tmp_path: Path
) -> None:
    """For each target ID, the images have the kernels of the compiler's own image, and no others.

    All that are registered are among them. Headers of libraries have templates of kernels
    that device code holds and no host code calls: clang registers none of those.
    """
    folder = build(program, installed)
    libraries = sorted(folder.glob("*.so"))
    targets = kernels([folder / program.name, *libraries], tmp_path / "ours")
    assert set(targets) == {"gfx906", "gfx90a:xnack+", "gfx942", "gfx1100"}
    (own,) = kernels([build_own(program, installed)], tmp_path / "own").values()
    assert all(found == own for found in targets.values())

    registered = {call[2] for call in run(folder / program.name)[1] if call[0] == "function"}
    assert registered <= own
    if program.calls["function"] != -1:
        assert registered == own


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.modules], ids=lambda program: program.name
)
def test_runtime_finds_images_of_modules(program: Program, installed: Installed) -> None:
    """In a fat binary for hipModuleLoad, ROCm's own reader finds each image where it is."""
    folder = build(program, installed)
    for module in program.modules:
        images = [image for image in list_images(folder / module) if image.target_id]
        assert len(images) == 4
        for image in images:
            isa = f"amdgcn-amd-amdhsa--{image.target_id}"
            assert look_up(folder / module, isa) == (image.offset, image.size)


def test_second_build_does_nothing(installed: Installed) -> None:
    """Programs with real headers are up to date after their first build."""
    for name in ("saxpy", "rdc"):
        program = next(program for program in PROGRAMS if program.name == name)
        assert "is up to date" in scons(build(program, installed), installed)
