"""Target triples in bundle entry IDs: four fields, whatever the user typed.

::

    amdgcn - amd - amdhsa -                x86_64 - unknown - linux - gnu
    arch     vendor  OS     environment    arch     vendor    OS      environment

LLVM moves the fields of a typed triple into place by known names (normalisation). It compares
triples not as text but by the meaning of each field: ``amd64`` is ``x86_64``, ``linux5.4`` is
``linux``, and all unknown vendors are equal. The tables below are those names; the functions are
those two rules.

From LLVM 23 on, an AMD GPU's architecture may name the GPU: ``amdgpu9.06`` is gfx906, ``amdgpu9``
the family of gfx9-generic; ``amdgpu`` and ``amdgcn`` leave it open. Two of them are compatible if
they are equal, if one leaves the GPU open, or if one is the family of the other.

A triple here is a string of four fields with dashes; missing fields count as empty.

Sources: the ClangOffloadBundler documentation (Bundle Entry ID) for the grammar,
clang-offload-bundler 22.1.8, observed, for names, normalisation and comparison; 23.1.4 for
``amdgpu``, which 22 does not know. AMDGPUUsage (Target Triples, Subarchitectures).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

from offload_tool.formats.targets.processors import AMDGPU_ARCHES

# Each row: equivalent names, then, unless it is the first name, their meaning: an architecture, or
# one of its sub-architectures after a slash.
_ARCH_ROWS = """
aarch64 arm64 -> aarch64/v8
aarch64_32 arm64_32
aarch64_be arm64eb
aarch64_lfi -> aarch64/lfi
amdgcn amdgpu
amdil
amdil64
arc
arm64ec -> aarch64/arm64ec
arm64e -> aarch64/arm64e
avr
bpf bpf_le bpfel
bpf_be bpfeb
csky
dxil
hexagon
hsail
hsail64
i386 i486 i586 i686 i786 i886 i986
lanai
loongarch32
loongarch64
m68k
mips mipsallegrex mipseb
mips64 mips64eb mipsn32
mips64el mipsn32el
mips64r6 mipsisa64r6 mipsn32r6 -> mips64/r6
mips64r6el mipsisa64r6el mipsn32r6el -> mips64el/r6
mipsel mipsallegrexel
mipsisa32r6 mipsr6 -> mips/r6
mipsisa32r6el mipsr6el -> mipsel/r6
msp430
nvptx
nvptx64
powerpc ppc ppc32
powerpc64 ppc64 ppu
powerpc64le ppc64le
powerpcle ppcle ppc32le
powerpcspe -> powerpc/spe
r600
renderscript32
renderscript64
riscv32
riscv32be
riscv64
riscv64be
s390x systemz
shave
sparc
sparc64 sparcv9
sparcel
spir
spir64
spirv
spirv32
spirv64
tce
tcele
ve
wasm32
wasm64
x86_64 amd64 x86_64h
xcore
xscale -> arm/v5te
xscaleeb -> armeb/v5te
xtensa
"""


def _arch_table() -> dict[str, tuple[str, str]]:
    table = {}
    for row in _ARCH_ROWS.strip().splitlines():
        names, _, target = row.partition(" -> ")
        arch, _, sub = (target or names.split()[0]).partition("/")
        table.update(dict.fromkeys(names.split(), (arch, sub)))
    table.update({f"dxilv1.{n}": ("dxil", f"v1.{n}") for n in range(10)})
    table.update({f"spirv1.{n}": ("spirv", f"v1.{n}") for n in (5, 6)})
    for arch in ("spirv32", "spirv64"):
        table.update({f"{arch}v1.{n}": (arch, f"v1.{n}") for n in range(7)})
    return table


_ARCHES = _arch_table()

# ARM's names are a grammar, not a list: a base, "eb" for big-endian, a version. Each base: the
# architecture, and its meaning with a final "eb" (None: not allowed).
_ARM_BASES = {
    "aarch64": ("aarch64", None),
    "aarch64_32": ("aarch64", "aarch64"),
    "aarch64_be": ("aarch64_be", None),
    "arm64": ("aarch64", "aarch64_be"),
    "arm64_32": ("aarch64", "aarch64_be"),
    "arm64e": ("aarch64", "aarch64_be"),
    "arm": ("arm", "armeb"),
    "armeb": ("armeb", None),
    "thumb": ("arm", "armeb"),
    "thumbeb": ("armeb", None),
}
_ARM_BASES_LONGEST_FIRST = sorted(_ARM_BASES, key=len, reverse=True)

_ARM_VERSIONS = {
    **{name: name for name in ("v4t", "v6t2", "v7em", "v7k", "v7m", "v7s", "v7ve", "v8r")},
    **{name: name for name in ("v8m.base", "v8m.main", "v8.1m.main")},
    **{f"v8.{n}a": f"v8.{n}a" for n in range(1, 10)},
    **{f"v9.{n}a": f"v9.{n}a" for n in range(1, 8)},
    **dict.fromkeys(("v5", "v5t"), "v5"),
    **dict.fromkeys(("v5e", "v5te", "v5tej"), "v5te"),
    **dict.fromkeys(("v6", "v6j"), "v6"),
    **dict.fromkeys(("v6hl", "v6k", "v6kz", "v6z", "v6zk"), "v6k"),
    **dict.fromkeys(("v6m", "v6sm"), "v6m"),
    **dict.fromkeys(("v7", "v7a", "v7hl", "v7l", "v7r"), "v7"),
    **dict.fromkeys(("v8", "v8a", "v8l"), "v8"),
    **dict.fromkeys(("v9", "v9a"), "v9"),
}

_VENDOR_NAMES = """
amd apple csr fsl ibm img intel mesa meta mti nvidia oe pc scei sie suse
"""
_VENDORS = frozenset(_VENDOR_NAMES.split())


def _longest_first(names: str) -> list[str]:
    return sorted(names.split(), key=len, reverse=True)  # gnueabihf is not gnu


# A field that begins with the name is this OS or environment: a version may follow.
_SYSTEMS = _longest_first("""
aix amdhsa amdpal bridgeos cheriotrtos cuda darwin dragonfly driverkit elfiamcu emscripten
freebsd fuchsia haiku hermit hurd ios kfreebsd linux liteos lv2 macos managarm mesa3d netbsd
nvcl openbsd ps4 ps5 rtems serenity shadermodel solaris tvos uefi visionos vulkan wasi wasip1
wasip2 wasip3 watchos win32 windows xros zos
""")
_ENVIRONMENTS = _longest_first("""
amplification android anyhit callable closesthit code16 compute coreclr cygnus domain eabi
eabihf geometry gnu gnu_ilp32 gnuabi64 gnuabin32 gnueabi gnueabihf gnueabihft64 gnueabit64
gnuf32 gnuf64 gnusf gnut64 gnux32 hull intersection itanium library llvm macabi mesh miss mlibc
msvc mtia musl muslabi64 muslabin32 musleabi musleabihf muslf32 muslsf muslwali muslx32 ohos
opencl pauthtest pixel raygeneration rootsignature simulator vertex
""")
_SAME_SYSTEM = {"win32": "windows", "visionos": "xros"}

_OBJECT_FORMATS = ("xcoff", "coff", "elf", "goff", "macho", "wasm", "spirv")  # first match wins

_DARWIN = frozenset({"bridgeos", "darwin", "driverkit", "ios", "macos", "tvos", "watchos", "xros"})
_LITTLE_ARM_AND_X86 = frozenset({"aarch64", "aarch64_32", "arm", "i386", "x86_64"})
_POWERPC_BIG = frozenset({"powerpc", "powerpc64"})

# The default object format, if it is not ELF: architectures, systems.
_DEFAULT_FORMATS = (
    ("macho", _LITTLE_ARM_AND_X86 | _POWERPC_BIG, _DARWIN),
    ("coff", _LITTLE_ARM_AND_X86 | {"mipsel"}, frozenset({"windows"})),
    ("coff", _LITTLE_ARM_AND_X86, frozenset({"uefi"})),
    ("xcoff", _POWERPC_BIG, frozenset({"aix"})),
    ("goff", frozenset({"s390x"}), frozenset({"zos"})),
)
_FORMATS_BY_ARCH = {
    **dict.fromkeys(("spirv", "spirv32", "spirv64"), "spirv"),
    **dict.fromkeys(("wasm32", "wasm64"), "wasm"),
    "dxil": "dxcontainer",
}


def _beginning(name: str, known: Iterable[str]) -> str:
    """Return the first of `known` with which `name` begins; empty if there is none."""
    return next((prefix for prefix in known if name.startswith(prefix)), "")


def _arm(name: str) -> tuple[str, str] | None:
    base = _beginning(name, _ARM_BASES_LONGEST_FIRST)
    if not base:
        return None
    version = name.removeprefix(base)
    arch, big_endian = _ARM_BASES[base]
    if big_endian is not None and version.endswith("eb"):
        arch, version = big_endian, version[:-2]
    if len(version) > 1 and (not re.match("v[0-9]", version) or "eb" in version):
        return None
    if base.startswith("thumb") and re.match("v[23]", version):
        return None  # Thumb came with version 4
    sub = _ARM_VERSIONS.get(version, "")
    if sub == "v6m":  # a Thumb-only version: Thumb code for any base
        arch = "armeb" if arch in {"aarch64_be", "armeb"} else "arm"
    return arch, sub


_AMDGPU = "amdgpu"


@functools.lru_cache(maxsize=1024)
def _arch(name: str) -> tuple[str, str] | None:
    if name.startswith("kalimba"):
        return ("kalimba", "")
    if name.startswith(_AMDGPU) and name != _AMDGPU:
        return ("amdgcn", name.removeprefix(_AMDGPU))  # any text, as in LLVM 23
    return _ARCHES.get(name) or _arm(name)


def _system(name: str) -> str:
    system = _beginning(name, _SYSTEMS)
    return _SAME_SYSTEM.get(system, system)


def _environment(name: str) -> str:
    return _beginning(name, _ENVIRONMENTS)


def _object_format(name: str) -> str:
    return next((f for f in _OBJECT_FORMATS if name.endswith(f)), "")


def is_known_arch(name: str) -> bool:
    """Return whether LLVM 22 or 23 knows the architecture; other fields are never rejected."""
    return _arch(name) is not None


def fields(triple: str) -> tuple[str, str, str, str]:
    """Split a triple into architecture, vendor, OS and environment, missing ones empty."""
    arch, vendor, system, environment = [*triple.split("-", 3), "", "", ""][:4]
    return arch, vendor, system, environment


_ARCH, _VENDOR, _OS, _ENV = range(4)


def _fits(position: int, name: str) -> bool:
    """Return whether normalisation may move a field of this name to this position."""
    if position == _ARCH:
        return is_known_arch(name)
    if position == _VENDOR:
        return name in _VENDORS
    if position == _OS:
        return bool(_system(name)) or name.startswith(("mingw", "cygwin"))
    return bool(_environment(name) or _object_format(name))


def _is_free(fixed: list[bool], index: int) -> bool:
    return index > _ENV or not fixed[index]


def _insert(parts: list[str], fixed: list[bool], at: int, name: str) -> None:
    """Insert a name at index `at`; each displaced one, up to a blank, moves to the next free."""
    for index in (i for i in range(at, len(parts)) if _is_free(fixed, i)):
        name, parts[index] = parts[index], name
        if not name:
            return
    parts.append(name)


def _move(parts: list[str], fixed: list[bool], at: int, to: int) -> None:
    """Move the field at index `at` to index `to`; fixed fields stay."""
    if at > to:
        name, parts[at] = parts[at], ""
        _insert(parts, fixed, to, name)
    while at < to:
        _insert(parts, fixed, at, "")
        at = next(i for i in range(at + 1, len(parts)) if _is_free(fixed, i))


def _sort_fields(parts: list[str]) -> list[bool]:
    """Move known names to their positions; return which positions have one."""
    fixed = [
        is_known_arch(parts[_ARCH]),
        parts[_VENDOR] in _VENDORS,
        bool(_system(parts[_OS])),
        bool(_environment(parts[_ENV])),
    ]
    for position in range(4):
        if fixed[position]:
            continue
        for index, name in enumerate(parts):
            if _is_free(fixed, index) and _fits(position, name):
                _move(parts, fixed, index, position)
                fixed[position] = True
                break
    return fixed


def _refine(parts: list[str]) -> None:
    """Rewrite the few combinations that have a preferred form."""
    environment = parts[_ENV]
    if environment.startswith("androideabi"):
        parts[_ENV] = "android" + environment.removeprefix("androideabi")
    elif parts[_VENDOR] == "suse" and _environment(environment) == "gnueabi":
        parts[_ENV] = "gnueabihf"
    if _system(parts[_OS]) == "windows":
        parts[_OS] = "windows"
        if not _environment(environment):
            object_format = _object_format(environment)
            parts[_ENV] = object_format if object_format not in {"", "coff"} else "msvc"
    elif parts[_OS].startswith("mingw"):
        parts[_OS:] = ["windows", "gnu"]
    elif parts[_OS].startswith("cygwin"):
        parts[_OS:] = ["windows", "cygnus"]
    if parts[_ARCH] == "dxil" and parts[_OS].startswith("shadermodel"):
        # From 6.10 on, LLVM 22 aborts here.
        minor = re.match(r"shadermodel6\.([0-9])(?![0-9])", parts[_OS])
        parts[_ARCH] = f"dxilv1.{minor[1] if minor else 0}"


def normalized(triple: str) -> str:
    """Return LLVM's normal form of a triple, four fields, with ``unknown`` for empty ones."""
    parts = list(fields(triple))
    _, vendor_known, system_known, _ = fixed = _sort_fields(parts)
    outer_known = fixed[_ARCH] and fixed[_ENV]
    if outer_known and not (vendor_known or system_known) and parts[1:3] == ["none", ""]:
        parts[1:3] = ["", "none"]  # arch-none-env: "none" is meant as the OS
    parts = [name or "unknown" for name in parts]
    _refine(parts)
    return "-".join(parts[:4])


def emitted(triple: str) -> str:
    """Return a triple as LLVM 22 writes it in bundle entry IDs: the normal form, four fields.

    The environment is empty if the OS field begins with ``amdhsa``, as ROCm's runtimes require.
    """
    normal = normalized(triple)
    if fields(triple)[_OS].startswith("amdhsa"):
        return "-".join([*normal.split("-")[:3], ""])
    return normal


class Meaning(NamedTuple):
    """LLVM's interpretation of a triple; unknown names have no meaning, ''."""

    arch: str
    sub_arch: str
    vendor: str
    system: str
    environment: str
    object_format: str


_FIELD_NAMES = {
    "arch": "architecture",
    "sub_arch": "sub-architecture",
    "vendor": "vendor",
    "system": "OS",
    "environment": "environment",
    "object_format": "object format",
}


@functools.lru_cache(maxsize=1024)
def meaning(triple: str) -> Meaning:
    """Interpret a triple's fields in place; an unknown architecture keeps its name."""
    arch_name, vendor, system_name, environment = fields(triple)
    arch, sub_arch = _arch(arch_name) or (arch_name, "")
    system = _system(system_name)
    return Meaning(
        arch,
        sub_arch,
        vendor if vendor in _VENDORS else "",
        system,
        _environment(environment),
        _object_format(environment) or _default_format(arch, system),
    )


def _default_format(arch: str, system: str) -> str:
    if arch in _FORMATS_BY_ARCH:
        return _FORMATS_BY_ARCH[arch]
    for object_format, arches, systems in _DEFAULT_FORMATS:
        if arch in arches and system in systems:
            return object_format
    return "elf"


def incompatibility(code_object: str, target: str) -> str | None:
    """Return briefly why code for one triple is not compatible with another; None if it is.

    Sub-architectures and object formats count, versions of an OS do not. Apple's environments and
    object formats are not compared, nor the vendors of GNU on Windows. The module's documentation
    has the rule for the GPU in an AMD architecture.
    """
    ours, theirs = meaning(code_object), meaning(target)
    ignored = set()
    if ours.vendor == theirs.vendor == "apple":
        ignored = {"environment", "object_format"}
    elif all(m.system == "windows" and m.environment == "gnu" for m in (ours, theirs)):
        ignored = {"vendor"}
    if ours.arch == theirs.arch == "amdgcn" and _is_same_family(ours.sub_arch, theirs.sub_arch):
        ignored.add("sub_arch")
    for name, our, their in zip(Meaning._fields, ours, theirs, strict=True):
        if our != their and name not in ignored:
            return f"{_FIELD_NAMES[name]} {our or 'unknown'} is not {their or 'unknown'}"
    return None


def without_gpu(triple: str) -> str:
    """Return a triple that leaves the AMD GPU open, for one such as ``amdgpu9.06-...``."""
    arch, dash, rest = triple.partition("-")
    return f"amdgcn{dash}{rest}" if arch.startswith(_AMDGPU) else triple


def _is_same_family(first: str, second: str) -> bool:
    """Return whether the GPUs in two AMD architectures match: ``9.06``, ``9``, none.

    A GPU that is not in the table matches only itself. (In LLVM 23 code for it matches nothing, not
    even itself, but code that leaves the GPU open matches it.)
    """
    if not (first and second) or first == second:
        return True
    families = [AMDGPU_ARCHES.get(_AMDGPU + sub_arch) for sub_arch in (first, second)]
    return families[0] == families[1] and families[0] in (_AMDGPU + first, _AMDGPU + second)
