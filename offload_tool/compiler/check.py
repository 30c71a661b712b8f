"""Check that a compile gave what was asked for.

An exit status of 0 proves little: a launcher may run the host compiler instead, and
clang compiles preprocessed HIP text to an empty code object without a word. What a
pass must contain is known beforehand, so it is looked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload_tool.errors import CodeObjectError, FormatError
from offload_tool.files import InputFile
from offload_tool.formats.bundle import is_bundle
from offload_tool.formats.elf import EM_AMDGPU, ElfFacts, is_elf, read_elf
from offload_tool.formats.hip_fatbin import cuid_symbol, fatbin_symbol
from offload_tool.formats.processors import find_processor

if TYPE_CHECKING:
    from offload_tool.files import StrPath
    from offload_tool.formats.target_id import TargetID

__all__ = ["check_code_object", "check_host_object"]

_SPIRV_MAGIC = bytes.fromhex("03022307")  # little-endian, as LLVM writes it
_MACH_MASK = 0xFF
# e_flags of code object version 4 and later: two bits per feature, "any" where the
# feature is supported but not set. Source: AMDGPUUsage, "ELF Header".
_FEATURE_SHIFT = {"xnack": 8, "sramecc": 10}
_FEATURE_WORDS = ("unsupported", "any", "off", "on")
_LAUNCHER_HINT = "a compiler launcher may have run another job; build without it to see"


def check_code_object(path: StrPath, target_id: TargetID, cuid: str) -> None:
    """Check an AMDGPU code object: machine, processor, feature settings and CUID.

    :raises CodeObjectError: it is something else; the message says what was found.
    """
    processor = find_processor(target_id.processor)
    if processor is not None and processor.family == "spirv":
        _check_spirv(path, target_id)
        return
    facts = _read(path, f"a code object for {target_id}")
    if facts.machine != EM_AMDGPU:
        raise CodeObjectError(
            f"'{path}': expected a code object for {target_id} (ELF machine {EM_AMDGPU}), "
            f"found ELF machine {facts.machine}; {_LAUNCHER_HINT}"
        )
    if processor is not None and processor.mach is not None:
        mach = facts.flags & _MACH_MASK
        if mach != processor.mach:
            raise CodeObjectError(
                f"'{path}': expected processor {target_id.processor} (EF_AMDGPU_MACH "
                f"{processor.mach:#x}), found {mach:#x}; {_LAUNCHER_HINT}"
            )
        _check_features(path, target_id, facts.flags, processor.features)
    _check_cuid(path, facts, cuid)


def check_host_object(path: StrPath, cuid: str) -> None:
    """Check a host object: it has this CUID, and asks for its bundle under no other name.

    :raises CodeObjectError: it is something else; the message says what was found.
    """
    facts = _read(path, "a host object")
    if facts.machine == EM_AMDGPU:
        raise CodeObjectError(f"'{path}': expected a host object, found AMDGPU code")
    wanted = fatbin_symbol(cuid)
    others = [
        symbol.name
        for symbol in facts.symbols
        if symbol.name.startswith("__hip_fatbin") and not symbol.defined and symbol.name != wanted
    ]
    if others:
        raise CodeObjectError(
            f"'{path}': expected the undefined symbol {wanted}, found {', '.join(others)}; "
            "this clang does not name device code by its CUID: use clang 19 or later"
        )
    _check_cuid(path, facts, cuid)


def _check_spirv(path: StrPath, target_id: TargetID) -> None:
    # A SPIR-V module has no processor, and names its symbols only where it keeps names.
    with InputFile(path) as source:
        found = bytes(source.data[: len(_SPIRV_MAGIC)])
        if found != _SPIRV_MAGIC:
            raise CodeObjectError(
                f"'{path}': expected a SPIR-V module for {target_id}, found {found!r}; "
                f"{_LAUNCHER_HINT}"
            )


def _read(path: StrPath, expected: str) -> ElfFacts:
    with InputFile(path) as source:
        if not is_elf(source.data):
            found = "an empty file" if not len(source) else repr(bytes(source.data[:8]))
            if is_bundle(source.data):
                found = "an offload bundle"
            raise CodeObjectError(
                f"'{path}': expected {expected} (ELF), found {found}; {_LAUNCHER_HINT}"
            )
        try:
            return read_elf(source.data, symbols=True, path=path)
        except FormatError as error:
            raise CodeObjectError(f"{error}; expected {expected}") from error


def _check_features(
    path: StrPath, target_id: TargetID, flags: int, supported: tuple[str, ...]
) -> None:
    asked = dict(target_id.features)
    for feature in supported:
        expected = {None: "any", True: "on", False: "off"}[asked.get(feature)]
        found = _FEATURE_WORDS[flags >> _FEATURE_SHIFT[feature] & 3]
        if found != expected:
            raise CodeObjectError(
                f"'{path}': expected {feature} {expected} for {target_id}, found {feature} {found}"
            )


def _check_cuid(path: StrPath, facts: ElfFacts, cuid: str) -> None:
    wanted = cuid_symbol(cuid)
    if not any(symbol.defined and symbol.name == wanted for symbol in facts.symbols):
        found = [s.name for s in facts.symbols if s.name.startswith("__hip_cuid_")] or ["none"]
        raise CodeObjectError(
            f"'{path}': expected the symbol {wanted} of -cuid={cuid}, found {found[0]}; "
            f"it was compiled from something else, or from nothing; {_LAUNCHER_HINT}"
        )
