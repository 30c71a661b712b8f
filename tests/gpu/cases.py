"""The table of cases: what is built, what becomes of it, and what each program prints.

A program prints a line for each of its units, a kernel or a target region: the target that the
unit was compiled for, the processor of the code that ran (0 where no runtime says it), and the
version of the source. What a device prints follows from the targets alone, by the rule in `served`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

CUDA_TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
FEW = ("sm_75", "sm_90")
OLDER = FEW[:1]
OPENMP_TARGETS = ("sm_80", "sm_90")
HIP_TARGETS = ("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100")
NVIDIA_DEVICES = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103")
NVIDIA_DEVICES += ("sm_110", "sm_120", "sm_121")
THINNED_FOR = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
SOURCES = Path(__file__).parent / "sources"
VERSION = zlib.crc32(b"".join(p.read_bytes() for p in sorted(SOURCES.glob("*.*")))) % 100000
"""Of the sources, compiled into each image: no other source gives the same."""

PROGRAM, MODULE, SETS = "program", "module", "sets"


@dataclass(frozen=True)
class Case:
    """A program or module, what it is made of, and what it prints."""

    name: str
    about: str
    file: str
    """In the build's folder, ``{device}`` for a file of each device."""
    units: Mapping[str, tuple[str, ...]]
    """The targets of each unit, as text that its line begins with."""
    lines: tuple[str, ...] = ()
    """The other lines."""
    arguments: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Other files that it needs."""
    kind: str = PROGRAM
    devices: tuple[str, ...] = ()
    """The devices that it is for, all if empty."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Of units that say another number."""
    thinned: str = ""
    """The folder whose files are thinned: its programs, and those of `files`."""
    keeps_ptx: bool = True
    """Whether they are thinned without ``--no-ptx``."""

    libraries: str = ""
    """The packed folder in which it finds libraries that not every machine has."""
    status: int = 0
    """Its exit status."""
    older_driver: str = ""
    """What it prints alone, before it ends with 1, with a driver older than the CUDA it is of."""
    reference_of: str = ""
    """The case whose program the compiler's own driver, or nvcc, makes here."""

    @property
    def api(self) -> str:
        """Whose runtime it needs: ``cuda``, ``hip`` or ``openmp``."""
        return self.name.partition("/")[0].rstrip("0123456789")


@dataclass(frozen=True)
class Served:
    """The image that serves a device."""

    target: str
    is_native: bool


def served(device: str, targets: tuple[str, ...]) -> Served | None:
    """Return the image of `targets` that a device runs, None if there is none.

    ``sm_80`` is a cubin and PTX, ``sm_80-real`` the one, ``sm_80-virtual`` the other. An AMD GPU
    runs its own code only; an NVIDIA GPU the newest cubin of its generation that is not newer than
    itself, else the newest PTX that is not newer. This is not asked of the package.
    """
    if device.startswith("gfx"):
        return Served(device, True) if device in targets else None
    number = int(device[3:])
    for form, is_native in (("-real", True), ("-virtual", False)):
        numbers = [
            int(t[3:].removesuffix(form)) for t in targets if t[3:].removesuffix(form).isdigit()
        ]
        fitting = [each for each in numbers if each <= number]
        if is_native:
            fitting = [each for each in fitting if each // 10 == number // 10]
        if fitting:
            return Served(f"sm_{max(fitting)}", is_native)
    return None


def expected_lines(case: Case, device: str) -> tuple[list[str], bool] | None:
    """Return the lines that a case prints on a device, and whether no PTX is compiled.

    None means that the case has nothing for this device.
    """
    if case.devices and device not in case.devices:
        return None
    lines, is_native = list(case.lines), True
    for unit, targets in case.units.items():
        found = served(device, targets)
        if found is None:
            return None
        is_native = is_native and found.is_native
        target = int(found.target[3:], 16) if device.startswith("gfx") else int(found.target[3:])
        binary = 0
        if case.api == "cuda":
            binary = target if found.is_native else int(device[3:])
        version = case.versions.get(unit, VERSION)
        lines.append(f"{unit}: target {target} binary {binary} version {version}")
    return sorted(lines), is_native


FEATURES = (
    "constant 4321",
    "constant after a copy 6789",
    "device variable 256",
    "template 42",
    "unnamed namespace 77",
    "lambda 42",
    "shuffle 496",
    "shared memory 63001",
    "mathematics 1125",
    "function pointer 21",
    "virtual function 4",
    "managed 42",
    "stream 77",
    "device says 42",
)

TEXTURE = "texture 87"
IDIOMS = ("here 42", "there 7", "new 30")
LINKED = ("answer 20107, 1 evaluated, own 101 and 20000",)
NESTED = ("sum 120",)
LAUNCHED = ("sm_80-real", "sm_90-real")
FORMS = {  # What nvcc, CMake and PyTorch have, and the images that it means.
    "pytorch": ("7.5;8.0+PTX", ("sm_75-real", "sm_80")),
    "cmake": ("80-real;90-virtual", ("sm_80-real", "sm_90-virtual")),
    "nvcc": ("compute_80 sm_90-real", ("sm_80-virtual", "sm_90-real")),
}
PLUGIN_CALLS = {"one": 1, "two": 50, "one again": 2, "two reopened": 50, "one reopened": 1}


def _case(
    api: str, name: str, about: str, units: Mapping[str, tuple[str, ...]], *lines: str, **more: Any
) -> Case:
    """Return a case; its file is ``build/API/NAME/NAME`` if `more` names none."""
    more.setdefault("file", f"build/{api}/{name}/{name}")
    return Case(f"{api}/{name}", about, units=units, lines=lines, **more)


def _plugins(api: str, name: str, about: str, targets: Mapping[str, tuple[str, ...]]) -> Case:
    libraries = tuple(f"build/{api}/{name}/{each}/libplugin.so" for each in ("one", "two"))
    units = {unit: targets[unit.split()[0]] for unit in PLUGIN_CALLS}
    lines = (f"{unit}: the host reads {calls + 1}" for unit, calls in PLUGIN_CALLS.items())
    more = {"arguments": libraries, "files": libraries, "versions": PLUGIN_CALLS}
    return _case(api, name, about, units, *lines, **more)


def common_cases(api: str, targets: tuple[str, ...], few: tuple[str, ...]) -> list[Case]:
    case = partial(_case, api)
    two = {"first": few, "second": few}
    mixed = {"first": few, "second": few[:1]}
    libraries = tuple(f"build/{api}/shared/lib{each}.so" for each in two)
    features = FEATURES if api == "hip" else (*FEATURES, TEXTURE)
    return [
        case("images", "OffloadProgram: the image of this device", {"images": targets}),
        *(
            case(f"images_{target}", "a program for one target", {"images": (target,)})
            for target in targets[:2]
        ),
        case("edited", "a source edited twice: no image is stale", {"edited": targets}),
        case("features", "parts of the language", {"features": few}, *features),
        case("cooperative", "a grid that waits", {"cooperative": few}, "rounds 160 160"),
        case("sources", "two sources", two),
        case("objects", "OffloadObject", two),
        case("static", "OffloadStaticLibrary, one for fewer targets", mixed),
        case("shared", "OffloadSharedLibrary, one for fewer targets", mixed, files=libraries),
        case("precompiled", "OFFLOAD_PCH", two),
        case("linked", "relocatable code of three sources", {"linked": few}, *LINKED),
        case("linked_library", "and of an OffloadArchive", {"linked": few}, *LINKED),
        case("device_link", "OFFLOAD_DEVICE_LINK, the program linked by g++", two),
        _plugins(api, "plugins", "dlopen, dlclose, equal names", {"one": few, "two": few[:1]}),
        _plugins(api, "linked_shared", "the same, relocatable", {"one": few, "two": few}),
    ]


def cuda_cases() -> list[Case]:
    case = partial(_case, "cuda")
    module = partial(case, kind=MODULE)
    all_units = {"module": CUDA_TARGETS}
    older = tuple(f"{target}-virtual" for target in CUDA_TARGETS[:2])
    refused = "GetLastError(): cudaErrorNoKernelImageForDevice"
    ptx_nested = case(
        *("ptx_nested", "PTX alone, kernels that start kernels", {"nested": older}, *NESTED),
        older_driver=refused,
    )
    cases = [
        *common_cases("cuda", CUDA_TARGETS, FEW),
        case("nested", "kernels that start kernels", {"nested": FEW}, *NESTED),
        case("ptx_images", "PTX alone", {"images": older}),
        case("ptx_features", "PTX alone", {"features": older}, *FEATURES, TEXTURE),
        case("ptx_linked", "PTX alone, relocatable", {"linked": older}, *LINKED),
        ptx_nested,
        *(
            case(name, f"OFFLOAD_ARCH={text!r}", {"images": targets})
            for name, (text, targets) in FORMS.items()
        ),
        case("early_linked", "a kernel in a constructor, relocatable", {"early": FEW}),
        case("compressed", "OFFLOAD_COMPRESS", {"images": FEW}),
        case("compressed_linked", "OFFLOAD_COMPRESS, relocatable", {"linked": FEW}, *LINKED),
        case("idioms", "what nvcc takes and clang mends", {"idioms": FEW}, *IDIOMS),
        case("ptx_idioms", "PTX alone", {"idioms": older}, *IDIOMS),
        case("streams", "a default stream for each thread", {"streams": FEW}, "the second one ran"),
        case(
            *("wrapped", "OffloadWrapper, a program without clang's registration"), {"images": FEW}
        ),
        case(
            *("early", "a kernel in a constructor: refused, as clang registers it later", {}),
            *("GetLastError(): cudaErrorInvalidResourceHandle",),
            status=1,
        ),
        module("module", "a fat binary", all_units, file="build/cuda/module/module.fatbin"),
        module(
            "merged", "merge of two", {"module": CUDA_TARGETS[:2]}, file="derived/merged.fatbin"
        ),
        module(
            *("thin_module", "thin of a fat binary", all_units),
            file="derived/thin/{device}/module.fatbin",
            devices=THINNED_FOR,
            thinned="build/cuda/module",
        ),
        module(
            *("extracted", "extract --target", all_units),
            file="derived/extracted/{device}",
            devices=THINNED_FOR,
        ),
        module(
            *("package", "OffloadPackage, which holds PTX, and OffloadExtract"),
            {"module": tuple(f"{target}-virtual" for target in CUDA_TARGETS)},
            file="build/cuda/module/extracted.{device}.co",
            devices=CUDA_TARGETS,
        ),
    ]
    for name in ("images", "features", "compressed", "shared", "linked", "nested"):
        (whole,) = (each for each in cases if each.name == f"cuda/{name}")
        for how, about in (("thin", "thin"), ("no_ptx", "thin --no-ptx")):
            folder = f"derived/{how}/{{device}}"
            thinned = replace(
                whole,
                name=f"cuda/{how}_{name}",
                about=about,
                file=f"{folder}/{name}",
                files=tuple(f"{folder}/{file.rpartition('/')[2]}" for file in whole.files),
                devices=THINNED_FOR if name == "images" else FEW,
                thinned=f"build/cuda/{name}",
                keeps_ptx=how == "thin",
            )
            cases.append(thinned)
    return [
        *cases,
        case(
            *("thin_static", "a program of thinned libraries", {"first": FEW, "second": OLDER}),
            file="derived/thin/{device}/static",
            devices=FEW,
        ),
        case(
            *("launch", "objects of offload-tool launch", {"first": LAUNCHED, "second": LAUNCHED}),
            file="derived/launch/launch",
        ),
        case("loader", "NVIDIA's loader beside match", {}, file="derived/loader", kind=SETS),
        case(
            *("example_rdc", "examples/cuda_rdc", {}),
            "app: 0 of 4096 values wrong, 4096 evaluated, no error",
            file="examples/cuda_rdc/app/app",
        ),
        case(
            *("example_thrust", "examples/cuda_thrust: Thrust and CUB", {}),
            "sorted: 0 values wrong, sum 9999900000, expected 9999900000, no error",
            file="examples/cuda_thrust/sorted",
            libraries="lib/openmp",  # C++'s
        ),
    ]


def openmp_cases() -> list[Case]:
    case = partial(_case, "openmp", libraries="lib/openmp")
    targets = tuple(f"{target}-real" for target in OPENMP_TARGETS)
    two = {"first": targets, "second": targets}
    libraries = tuple(f"build/openmp/shared/lib{each}.so" for each in two)
    features = ("reduction 45000", "product 1024", "maximum 9", "declare target 45")
    features += ("target update 100", "teams 4, threads 1", "target data 1 10", "device says 42")
    return [
        case("features", "teams, reductions, declare target", {"first": targets}, *features),
        case("mathematics", "libdevice", {"first": targets}, "mathematics 100.000000"),
        case("sources", "two sources", two),
        case("static", "OffloadStaticLibrary", two),
        case("shared", "OffloadSharedLibrary", two, files=libraries),
    ]


def all_cases() -> list[Case]:
    cases = [*cuda_cases(), *openmp_cases()]
    cases += [_reference(cases, name, compiler) for name, compiler in REFERENCES]
    return [*cases, *common_cases("hip", HIP_TARGETS, HIP_TARGETS)]


REFERENCES = (("cuda/early", "clang"), ("cuda/nested", "nvcc"), ("cuda/ptx_nested", "nvcc"))


def _reference(cases: list[Case], name: str, compiler: str) -> Case:
    """Return a case's program as another compiler makes it."""
    (case,) = (each for each in cases if each.name == name)
    file = f"reference/{compiler}/{name}"
    about = f"{case.about}, by {compiler} alone"
    made = replace(case, name=f"{name}.{compiler}", file=file, about=about, reference_of=name)
    # PTX of a newer nvcc; the device runtime alone is newer in our programs.
    refused = "GetLastError(): cudaErrorUnsupportedPtxVersion"
    return replace(made, older_driver=refused) if case.older_driver else made
