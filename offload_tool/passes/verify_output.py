"""Check the output of a compile.

An exit status of 0 proves little: a launcher may run the host compiler instead, and clang silently
compiles preprocessed HIP text to an empty code object. The checks look for the required content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from offload_tool.errors import CodeObjectError, ContentError, FormatError, UsageError
from offload_tool.formats.hip_fatbin import FATBIN, cuid_hash, cuid_symbol, fatbin_symbol
from offload_tool.formats.host_symbols import HipHostCode, bitcode_host_code, hip_host_code
from offload_tool.formats.magic import BUNDLE, SPIRVS, begins
from offload_tool.formats.objects.elf.reader import (
    EM_AMDGPU,
    EM_CUDA,
    ET_REL,
    ElfTables,
    is_elf,
    is_elf_header,
    read_elf_tables,
)
from offload_tool.formats.targets.processors import find_processor
from offload_tool.io import InputFile, StrPath

if TYPE_CHECKING:
    from offload_tool.formats.targets.compile_target import CompileTarget
    from offload_tool.formats.targets.target_id import TargetID

_MACH_MASK = 0xFF
# e_flags of code object version 4 and later: two bits per feature, "any" where the
# feature is supported but not set. Source: AMDGPUUsage, "ELF Header".
_FEATURE_SHIFT = {"xnack": 8, "sramecc": 10}
_FEATURE_SETTINGS = ("unsupported", "any", "off", "on")
_PTX_TARGET = re.compile(rb"^\.target (\S+?)(?:,|\s|$)", re.MULTILINE)
_PTX_HEAD = 4096
"""The ``.target`` line of PTX must be in these first bytes: only comments precede it."""
_ENTRY_PREFIXES = ("offloading.entry.", "omp_offloading.entry.")
"""Prefixes of entries in host code, after a dot; the second one up to clang 18."""
_KERNEL = "__omp_offloading_"
_HOST_MARK = re.compile(r"\.__omp_offloading_.*\.region_id")
"""The address by which host code references a kernel."""
_OTHER_CODE = {EM_AMDGPU: "AMDGPU code", EM_CUDA: "CUDA code"}
_KERNEL_STUB = "__device_stub__"
"""Part of the name of each kernel's function in host code."""
_LAUNCHER_HINT = "the compiler launcher may have run another job; build without it to see"
_IR_TEXT = b"; ModuleID"


class OtherOutputError(CodeObjectError):
    """The output is that of another job."""


@contextmanager
def blaming_launcher(*, is_launched: bool = True) -> Iterator[None]:
    """Add to the error of a check, in the block, that a compiler launcher may have run the job."""
    try:
        yield
    except OtherOutputError as error:
        if not is_launched:
            raise
        raise CodeObjectError(f"{error}; {_LAUNCHER_HINT}") from None


def check_output(
    kind: str,
    stage: str,
    output: StrPath,
    cuid: str,
    device: CompileTarget | None,
    *,
    rdc: bool = False,
    host_ir: StrPath | None = None,
) -> None:
    """Check a pass's output, and unwrap a code object; raise CodeObjectError if it is another."""
    if kind == "openmp":
        if device is not None:
            check_entries(output, device, host_ir)
        elif stage == "host-ir":
            check_host_ir(output)
    elif kind == "cuda":
        if device is None:
            check_cuda_host_object(output, rdc=rdc)
        elif device.target_id is not None:
            check_ptx(output, device.target_id)
    elif device is None:
        check_host_object(output, cuid, rdc=rdc)
    elif rdc:
        check_bitcode(output, device, cuid)
    elif device.target_id is not None:
        unwrap_code_object(output, device.name)
        check_code_object(output, device.target_id, cuid)


def check_code_object(path: StrPath, target_id: TargetID, cuid: str | None) -> None:
    """Raise CodeObjectError unless processor, features and CUID (None: of a link) are right."""
    processor = find_processor(target_id.processor)
    if processor is not None and processor.family == "spirv":
        _check_spirv(path, target_id)
        return
    with _read(path, f"a code object for {target_id}") as elf:
        header, defined = elf.header, _defined(elf)
    if header.e_machine != EM_AMDGPU:
        raise OtherOutputError(
            f"'{path}': expected a code object for {target_id} (ELF machine {EM_AMDGPU}), "
            f"found ELF machine {header.e_machine}"
        )
    if processor is not None and processor.mach is not None:
        mach = header.e_flags & _MACH_MASK
        if mach != processor.mach:
            raise OtherOutputError(
                f"'{path}': expected processor {target_id.processor} (EF_AMDGPU_MACH "
                f"{processor.mach:#x}), found {mach:#x}"
            )
        _check_features(path, target_id, header.e_flags, processor.features)
    if cuid is not None:
        _check_cuid(path, defined, cuid)


def unwrap_code_object(path: StrPath, target_id: str) -> None:
    """Extract the code object from a bundle, which clang 22 makes with ``--offload-new-driver``."""
    from offload_tool.formats.bundle.binary import read_bundle
    from offload_tool.io import replace_file

    with InputFile(path) as source:
        if not begins(source.data, BUNDLE):
            return
        for entry in read_bundle(source.data, path=path).entries:
            if entry.id.endswith(f"--{target_id}"):
                with replace_file(path) as out:
                    out.copy(source, entry.offset, entry.size)
                return


def check_host_object(path: StrPath, cuid: str, *, rdc: bool = False) -> None:
    """Raise CodeObjectError unless a HIP host object has this CUID and registers its kernels.

    It references the bundle of this CUID by its symbol or, with relocatable device code (`rdc`),
    has entries of the new offload driver. A source with device functions only has neither.
    With ``-flto`` it is bitcode, which the linker compiles.
    """
    defined: Iterable[str]
    if is_bitcode := _is_bitcode_file(path):
        defined = _bitcode_symbols(path, "a host object")
        code = _host_code_of_bitcode(path)
    else:
        with _read(path, "a host object") as elf:
            code, defined = hip_host_code(elf), _defined(elf)
        if elf.header.e_machine == EM_AMDGPU:
            raise CodeObjectError(
                f"'{path}': expected a host object, found AMDGPU code; "
                "remove flags that ask for device code alone"
            )
    _check_registration(path, code, cuid, rdc=rdc or is_bitcode)
    _check_cuid(path, defined, cuid)


def check_holds_code(path: StrPath) -> None:
    """Raise CodeObjectError if a host object is bitcode, which cannot hold device code."""
    if _is_bitcode_file(path):
        raise CodeObjectError(
            f"'{path}': device code cannot be put into an object of -flto; give the source to "
            "the program itself, or compile with -ffat-lto-objects"
        )


def _host_code_of_bitcode(path: StrPath) -> HipHostCode:
    from offload_tool.formats.bitcode.module import bitcode_triple

    with InputFile(path) as source:
        triple = bitcode_triple(source.data)
        code = bitcode_host_code(source.data)
    if triple.startswith(("amdgcn", "amdgpu", "nvptx", "spirv")):
        raise OtherOutputError(f"'{path}': expected a host object, found bitcode for {triple}")
    return code


def _check_registration(path: StrPath, code: HipHostCode, cuid: str, *, rdc: bool) -> None:
    wanted, others = fatbin_symbol(cuid), sorted(code.hashes - {cuid_hash(cuid)})
    if code.needs_program_bundle or others:
        found = FATBIN if code.needs_program_bundle else f"{FATBIN}_{others[0]}"
        raise CodeObjectError(
            f"'{path}': expected the undefined symbol {wanted}, found {found}; "
            "this clang does not name device code by its CUID: use clang 19 or later"
        )
    if code.unregistered:
        raise OtherOutputError(
            f"'{path}': expected the undefined symbol {wanted}, found none, and nothing else that "
            f"registers the kernel {min(code.unregistered)}"
        )
    if code.has_entries and not (rdc and code.cuids):
        what = "and no CUID; its clang is too old for that driver" if rdc else "of one source"
        raise CodeObjectError(
            f"'{path}': expected the undefined symbol {wanted}, found entries of the new offload "
            f"driver {what}; compile without --offload-new-driver"
        )


def check_bitcode(path: StrPath, device: CompileTarget, cuid: str) -> None:
    """Raise CodeObjectError unless this is HIP's device bitcode with this CUID."""
    _check_cuid(path, _bitcode_symbols(path, f"bitcode for {device.name}", device.arch), cuid)


def check_ptx(path: StrPath, target_id: TargetID) -> None:
    """Check PTX for this target, and settle its declarations; raise CodeObjectError."""
    from offload_tool.formats.cuda.ptx import settled
    from offload_tool.io import replace_file

    with InputFile(path) as source:
        module = bytes(source.data)
    head = module[:_PTX_HEAD]
    found = _PTX_TARGET.search(head)
    if found is None or found[1].decode("ascii", "replace") != target_id.processor:
        what = repr(found[0].decode("ascii", "replace")) if found else _described(memoryview(head))
        raise OtherOutputError(
            f"'{path}': expected PTX with the line '.target {target_id}', found {what}"
        )
    if (text := settled(module)) != module:
        with replace_file(path) as out:
            out.write(text)


def check_cubin(path: StrPath, *, rdc: bool = False) -> None:
    """Raise CodeObjectError unless this is a cubin, relocatable with `rdc`."""
    with _read(path, "a cubin") as elf:
        machine, kind = elf.header.e_machine, elf.header.e_type
    if machine != EM_CUDA:
        raise CodeObjectError(
            f"'{path}': expected a cubin (ELF machine {EM_CUDA}), found ELF machine {machine}"
        )
    if rdc != (kind == ET_REL):
        what = ("one to be loaded", "one to be linked")
        raise CodeObjectError(
            f"'{path}': expected a cubin that is {what[rdc]}, found {what[not rdc]}"
        )


def check_cuda_host_object(path: StrPath, *, rdc: bool = False) -> None:
    """Raise CodeObjectError if kernels of a host object have no placeholder (`rdc`: or entries)."""
    from offload_tool.formats.cuda.object_section import (
        RELOCATABLE_SECTION,
        SECTION,
        find_placeholder,
    )
    from offload_tool.formats.host_symbols import SHARED_MODULE_ID, cuda_host_code

    with _read(path, "a host object") as elf:
        kernels = [name for name in _defined(elf) if _KERNEL_STUB in name]
    if elf.header.e_machine in (EM_AMDGPU, EM_CUDA):
        raise CodeObjectError(
            f"'{path}': expected a host object, found device code; "
            "remove flags that ask for device code alone"
        )
    with InputFile(path) as source:
        code = cuda_host_code(read_elf_tables(source.data, path=path)) if rdc else None
        if code is not None and SHARED_MODULE_ID in code.called:
            raise CodeObjectError(
                f"'{path}': this compiler's old offload driver (clang 23) cannot distinguish "
                "sources of relocatable CUDA code; remove --no-offload-new-driver and "
                "OFFLOAD_ARCHIVE_FORMAT='fat-binary', or use clang 22"
            )
        if find_placeholder(source.data, path=path) is not None:
            return
        if code is not None and code.has_entries:
            return
    if kernels:
        section = RELOCATABLE_SECTION if rdc else SECTION
        raise OtherOutputError(
            f"'{path}': expected a section {section} for the fat binary of {kernels[0]}, found none"
        )


def check_no_entries(path: StrPath) -> None:
    """Raise CodeObjectError if a CUDA host object has the new offload driver's entries."""
    from offload_tool.formats.host_symbols import cuda_host_code

    with _read(path, "a host object") as elf:
        if cuda_host_code(elf).has_entries:
            raise OtherOutputError(
                f"'{path}': expected host code of the old offload driver, as clang's driver said "
                "it would be, found entries of the new one; set OFFLOAD_ARCHIVE_FORMAT"
            )


def check_host_ir(path: StrPath) -> None:
    """Raise CodeObjectError unless an OpenMP source's host IR is bitcode; it may lack entries."""
    _bitcode_symbols(path, "host IR")


def check_image(path: StrPath, kind: str, device: CompileTarget) -> None:
    """Raise CodeObjectError unless an image of linked sources is for the device."""
    if kind == "openmp" and _is_bitcode_file(path):  # as of -fopenmp-target-jit
        _bitcode_symbols(path, f"an image for {device.name}", device.arch)
    elif device.target_id is not None:
        if device.arch == "nvptx64":
            check_cubin(path)
        else:
            check_code_object(path, device.target_id, None)


def check_entries(path: StrPath, device: CompileTarget, host_ir: StrPath | None) -> None:
    """Raise CodeObjectError unless an OpenMP module has every kernel that its host code starts."""
    if host_ir is None:
        raise UsageError("the check of an OpenMP device pass needs the host IR")
    if device.arch == "amdgcn" or _is_bitcode_file(path):  # as of -foffload-lto
        defined = _bitcode_symbols(path, f"bitcode for {device.name}", device.arch)
    else:
        defined = _object_symbols(path, device)
    if any(map(_HOST_MARK.fullmatch, defined)):
        raise OtherOutputError(
            f"'{path}': expected a device module for {device.name}, found a host object"
        )
    kernels = {name for name in _host_entries(host_ir) if name.startswith(_KERNEL)}
    missing = sorted(kernels - defined)
    if missing:
        found = sorted(name for name in defined if name.startswith(_KERNEL)) or ["no kernel"]
        raise OtherOutputError(
            f"'{path}': expected the kernels that '{host_ir}' starts, but {missing[0]} is "
            f"missing (found {found[0]}); the source was replaced between the two compiles"
        )


def _host_entries(path: StrPath) -> set[str]:
    return {
        name[1:].removeprefix(prefix)
        for name in _bitcode_symbols(path, "host IR")
        for prefix in _ENTRY_PREFIXES
        if name[1:].startswith(prefix)
    }


def _bitcode_symbols(path: StrPath, expected: str, arch: str = "") -> set[str]:
    """Return the names that a bitcode module defines; check that it is for `arch`, if given."""
    # Imported here and above, as each compile checks one kind of output only.
    from offload_tool.formats.bitcode.module import bitcode_symbols, bitcode_triple, is_bitcode

    with InputFile(path) as source:
        if not is_bitcode(source.data):
            found = _described(source.data)
            raise OtherOutputError(f"'{path}': expected {expected}, found {found}")
        try:
            names = bitcode_symbols(source.data)
            triple = bitcode_triple(source.data)
        except ContentError as error:
            raise CodeObjectError(f"'{path}': {error}; expected {expected}") from error
    if arch and triple.split("-", 1)[0] not in ("", arch):
        raise OtherOutputError(f"'{path}': expected {expected}, found bitcode for {triple}")
    return set(names.decode("utf-8", "surrogateescape").split("\0"))


def _is_bitcode_file(path: StrPath) -> bool:
    from offload_tool.formats.bitcode.module import is_bitcode

    with InputFile(path) as source:
        return is_bitcode(source.data)


def _described(data: memoryview) -> str:
    from offload_tool.formats.bitcode.module import is_bitcode

    if not len(data):
        return "an empty file"
    if begins(data, BUNDLE):
        return "an offload bundle"
    if is_bitcode(data):
        return "LLVM bitcode; flags such as -flto and -emit-llvm do not belong here"
    if bytes(data[: len(_IR_TEXT)]) == _IR_TEXT:
        return "LLVM IR as text; flags such as -flto and -emit-llvm do not belong here"
    return repr(bytes(data[:8]))


def _object_symbols(path: StrPath, device: CompileTarget) -> set[str]:
    with _read(path, f"a device module for {device.name}") as elf:
        machine, symbols = elf.header.e_machine, list(elf.named_symbols())
    defined = [symbol for symbol in symbols if symbol.defined]
    is_gpu = machine in (EM_AMDGPU, EM_CUDA)
    if machine != EM_CUDA if device.target_id is not None else is_gpu:
        raise OtherOutputError(
            f"'{path}': expected a device module for {device.name}, found "
            f"{_OTHER_CODE.get(machine, 'a host object')}"
        )
    # In unoptimised host code, local functions have the same names.
    return {symbol.name for symbol in defined if not symbol.local}


def _check_spirv(path: StrPath, target_id: TargetID) -> None:
    # A SPIR-V module has no processor, and may have no symbol names.
    with InputFile(path) as source:
        found = bytes(source.data[:4])
        if found != SPIRVS[0]:  # little-endian, as LLVM writes it
            raise OtherOutputError(
                f"'{path}': expected a SPIR-V module for {target_id}, found {found!r}"
            )


@contextmanager
def _read(path: StrPath, expected: str) -> Iterator[ElfTables]:
    """Open an ELF file; errors in the block get the expected content added."""
    with InputFile(path) as source:
        if not is_elf(source.data):
            found = _described(source.data)
            raise OtherOutputError(f"'{path}': expected {expected} (ELF), found {found}")
        try:
            if not is_elf_header(source.data):
                message = "broken ELF file: cut short, or of a class or byte order that does "
                message += "not exist"
                raise FormatError(message, path=path, offset=4, field="e_ident")
            yield read_elf_tables(source.data, path=path)
        except ContentError as error:
            raise CodeObjectError(f"{error}; expected {expected}") from error


def _defined(elf: ElfTables) -> dict[str, None]:
    return {symbol.name: None for symbol in elf.named_symbols() if symbol.defined}


def _check_features(
    path: StrPath, target_id: TargetID, flags: int, supported: tuple[str, ...]
) -> None:
    requested = dict(target_id.features)
    for feature in supported:
        expected = {None: "any", True: "on", False: "off"}[requested.get(feature)]
        found = _FEATURE_SETTINGS[flags >> _FEATURE_SHIFT[feature] & 3]
        if found != expected:
            raise CodeObjectError(
                f"'{path}': expected {feature} {expected} for {target_id}, found {feature} {found}"
            )


def _check_cuid(path: StrPath, defined: Iterable[str], cuid: str) -> None:
    wanted = cuid_symbol(cuid)
    if wanted not in defined:
        found = sorted(n for n in defined if n.startswith("__hip_cuid_")) or ["none"]
        raise OtherOutputError(
            f"'{path}': expected the symbol {wanted} of -cuid={cuid}, found {found[0]}; "
            "it was compiled from something else, or from nothing"
        )
