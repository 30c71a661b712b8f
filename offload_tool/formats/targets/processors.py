"""The processors for which device code can be compiled, as data.

One row has a processor's name in target IDs, its family (which determines the triple), its
alternative names, and the target features that a target ID may set. AMD GPUs also have the number
in their ELF code objects (EF_AMDGPU_MACH, the low byte of e_flags). A new GPU is one more row: its
features are those that ``clang --offload-arch=NAME:FEATURE+`` accepts, and AMDGPUUsage lists its
number.

An AMD GPU also has LLVM 23's architecture name for triples, which is an alternative name of the
processor too: ``amdgpu9.0a`` is gfx90a, ``amdgpu9.4`` gfx9-4-generic.

Sources: AMDGPUUsage (Processors, Target Features, ELF Header), and clang and clang-offload-bundler
22.1.8 and 23.1.4, observed. Tests compare every row with the programs of both. LLVM's pull request
219963 for the architecture names as target IDs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from offload_tool.util.frozen import frozen


@frozen
class Processor:
    """A processor under its primary name.

    `family` is ``amdgcn``, ``nvptx``, ``spirv``, or, for names that the tools know but that are not
    GPU targets, ``intel`` and ``any``. `features` are sorted. `covers` is empty except for generic
    processors: it lists the processors whose devices can run their code. `mach` is None without an
    AMDGPU ELF number. `since` is the first LLVM that supports it, or 22 if older ones do;
    `newer_features` are those of `features` that LLVM 22 rejects.
    """

    name: str
    family: str
    alternative_names: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    mach: int | None = None
    covers: tuple[str, ...] = ()
    since: int = 22
    newer_features: tuple[str, ...] = ()


# name(=alternative names)  features  mach  (since, if it is not 22)
_AMDGPU = """
gfx600=tahiti                       -               0x20
gfx601=pitcairn,verde               -               0x21
gfx602=hainan,oland                 -               0x3a
gfx700=kaveri                       -               0x22
gfx701=hawaii                       -               0x23
gfx702                              -               0x24
gfx703=kabini,mullins               -               0x25
gfx704=bonaire                      -               0x26
gfx705                              -               0x3b
gfx801=carrizo                      xnack           0x28
gfx802=iceland,tonga                -               0x29
gfx803=fiji,polaris10,polaris11     -               0x2a
gfx805=tongapro                     -               0x3c
gfx810=stoney                       xnack           0x2b
gfx900                              xnack           0x2c
gfx902                              xnack           0x2d
gfx904                              xnack           0x2e
gfx906                              sramecc,xnack   0x2f
gfx908                              sramecc,xnack   0x30
gfx909                              xnack           0x31
gfx90a                              sramecc,xnack   0x3f
gfx90c                              xnack           0x32
gfx942                              sramecc,xnack   0x4c
gfx950                              sramecc,xnack   0x4f
gfx1010                             xnack           0x33
gfx1011                             xnack           0x34
gfx1012                             xnack           0x35
gfx1013                             xnack           0x42
gfx1030                             -               0x36
gfx1031                             -               0x37
gfx1032                             -               0x38
gfx1033                             -               0x39
gfx1034                             -               0x3e
gfx1035                             -               0x3d
gfx1036                             -               0x45
gfx1100                             -               0x41
gfx1101                             -               0x46
gfx1102                             -               0x47
gfx1103                             -               0x44
gfx1150                             -               0x43
gfx1151                             -               0x4a
gfx1152                             -               0x55
gfx1153                             -               0x58
gfx1154                             -               0x57  23
gfx1170                             -               0x5d  23
gfx1171                             -               0x5e  23
gfx1172                             -               0x5c  23
gfx1200                             -               0x48
gfx1201                             -               0x4e
gfx1250                             -               0x49
gfx1251                             -               0x5a
gfx1310                             -               0x50  23
"""

# name  features  mach  the processors covered, without "gfx"  (since, if it is not 22)
_AMDGPU_GENERIC = """
gfx9-generic     xnack          0x51  900,902,904,906,909,90c
gfx9-4-generic   sramecc,xnack  0x5f  942,950
gfx10-1-generic  xnack          0x52  1010,1011,1012,1013
gfx10-3-generic  -              0x53  1030,1031,1032,1033,1034,1035,1036
gfx11-generic    -              0x54  1100,1101,1102,1103,1150,1151,1152,1153,1154
gfx11-7-generic  -              0x62  1170,1171,1172  23
gfx12-generic    -              0x59  1200,1201
gfx12-5-generic  -              0x5b  1250,1251  23
gfx13-generic    -              0x63  1310  23
"""

_FEATURES_OF_23 = {"gfx1250": ("sramecc",), "gfx1251": ("sramecc",)}

_NVPTX = """
20 21 30 32 35 37 50 52 53 60 61 62 70 72 75 80 86 87 88 89 90 90a
100 100a 101 101a 103 103a 110 110a 120 120a 121 121a
"""

# LLVM 22 can generate code for these, but its driver and bundler do not know them.
_NVPTX_BACKEND_ONLY = "100f 101f 103f 110f 120f 121f"


def _list(text: str) -> tuple[str, ...]:
    return () if text == "-" else tuple(text.split(","))


def _rows() -> Iterator[Processor]:
    for line in (_AMDGPU.strip() + _AMDGPU_GENERIC.rstrip()).splitlines():
        names, features, mach, *rest = line.split()
        name, _, alternatives = names.partition("=")
        covers = rest.pop(0) if name.endswith("-generic") else "-"
        newer = _FEATURES_OF_23.get(name, ())
        yield Processor(
            name,
            "amdgcn",
            _list(alternatives or "-"),
            (*_list(features), *newer),
            int(mach, 16),
            tuple(f"gfx{number}" for number in _list(covers)),
            int(rest[0]) if rest else 22,
            newer,
        )
    yield Processor("amdgcnspirv", "spirv")
    for number in (_NVPTX + _NVPTX_BACKEND_ONLY).split():
        yield Processor(f"sm_{number}", "nvptx")
    yield Processor("graniterapids", "intel")
    yield Processor("bmg_g21", "intel")
    yield Processor("generic", "any")


PROCESSORS: Mapping[str, Processor] = MappingProxyType({row.name: row for row in _rows()})
"""Every processor by its primary name."""


def _arch_name(processor: str) -> str:
    number = processor.removeprefix("gfx")
    if number.endswith("-generic"):
        return "amdgpu" + number.removesuffix("-generic").replace("-", ".")
    return f"amdgpu{number[:-2]}.{number[-2:]}"


def _amdgpu_arches() -> Iterator[tuple[str, str]]:
    rows = [row for row in PROCESSORS.values() if row.family == "amdgcn"]
    majors = {name: _arch_name(row.name) for row in rows for name in row.covers}
    for row in rows:
        arch = _arch_name(row.name)
        major = majors.get(row.name, arch)
        if re.fullmatch("gfx[678]0.", row.name):  # families without a generic processor
            major = f"amdgpu{row.name[3]}"
            yield major, major
        yield arch, major


AMDGPU_ARCHES: Mapping[str, str] = MappingProxyType(dict(_amdgpu_arches()))
"""LLVM 23's architectures of AMD GPUs, ``amdgpu9.06``, and the family of each, ``amdgpu9``.

A family maps to itself; a processor whose code only it can run is alone in its family.
"""

_BY_ANY_NAME = {
    **{_arch_name(row.name): row for row in PROCESSORS.values() if row.family == "amdgcn"},
    **{name: row for row in PROCESSORS.values() for name in (row.name, *row.alternative_names)},
}
PROCESSOR_OF_MACH = {row.mach: row for row in PROCESSORS.values() if row.mach is not None}
"""The AMD GPU whose code objects have an EF_AMDGPU_MACH value in e_flags."""


def find_processor(name: str) -> Processor | None:
    """Return the processor with any of its names, architecture names included (case-sensitive)."""
    return _BY_ANY_NAME.get(name)


_SOLD_AS = """
mi50=gfx906 mi60=gfx906 mi100=gfx908 mi200=gfx90a mi210=gfx90a mi250=gfx90a mi300=gfx942
mi325=gfx942 mi350=gfx950 mi355=gfx950 v100=sm_70 t4=sm_75 a100=sm_80 l4=sm_89 l40=sm_89
h100=sm_90 h200=sm_90 b200=sm_100
"""
_PRODUCTS = dict(item.split("=") for item in _SOLD_AS.split())
"""Product names of GPUs. Source: AMDGPUUsage; NVIDIA's table of compute capabilities."""
_CAPABILITY = re.compile(r"(?:compute_|lto_)?(\d+)\.?(\d)(?:-real|-virtual)?")
"""The form of CMake, PyTorch and nvcc: ``80-real``, ``8.0``, ``compute_80``."""
_FAMILY = re.compile(r"(gfx[0-9a-f]+)X(?:-\w+)?")
"""The form of the families of ROCm's packages (TheRock): ``gfx94X-dcgpu``."""
_WITHOUT_COLON = re.compile(r"(gfx\w+)[-_. /](xnack|sramecc)([+-]?)")
_PRODUCT = re.compile(r"(?:amd|nvidia|instinct)?[-_ ]?([a-z]+\d+)[a-z]*")


def product_processor(name: str) -> str | None:
    """Return the processor of a GPU by the name that it is sold under, such as ``MI300X``."""
    product = _PRODUCT.fullmatch(name.lower())
    return _PRODUCTS.get(product[1]) if product else None


def nearest_names(name: str) -> tuple[str, ...]:
    """Return known names most similar to `name` (a number is a compute capability), best first."""
    import difflib  # rarely needed

    capability = _CAPABILITY.fullmatch(name)
    if capability:
        return (f"sm_{capability[1]}{capability[2]}",)
    if family := _FAMILY.fullmatch(name):
        return tuple(n for n in _BY_ANY_NAME if re.fullmatch(rf"{family[1]}\w", n))
    split = _WITHOUT_COLON.fullmatch(name)
    if split and split[1] in _BY_ANY_NAME:
        return (f"{split[1]}:{split[2]}{split[3] or '+'}",)
    inside = [n for n in re.findall(r"[a-z]+_?\d+\w*", name) if n in _BY_ANY_NAME]
    if inside:  # a bundle entry ID, or a feature in another form
        return tuple(inside[:1])
    if product := product_processor(name):
        return (product,)
    known = [n for n, row in _BY_ANY_NAME.items() if row.family not in {"any", "intel"}]
    return tuple(difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.7))
