"""Registration modules: LLVM IR with which a host program registers its device images.

Content of a module of each offload kind, and the actions of its constructor::

    openmp                                      hip, cuda
    -----------------------------------------   ----------------------------------------
    .omp_offloading.device_image[.N]            .fatbin_image
      a file's bytes     ^        ^               a file's bytes   ^
    .omp_offloading.device_images                .fatbin_wrapper   |
      {image start, image end,                     {magic, 1, image, null}
       entries begin, entries end} each          .hip.binary_handle
                         ^
    .omp_offloading.descriptor                   constructor: the handle =
      {count, images, entries begin, end}          __hipRegisterFatBinary(wrapper), then
                                                   one call for each entry of this kind;
    constructor: __tgt_register_lib(descriptor)    cuda: __cudaRegisterFatBinaryEnd
    exit:        __tgt_unregister_lib            exit: __hipUnregisterFatBinary(handle)

The host compiler puts entries into a section of its own, one struct for each kernel and variable;
the linker defines symbols for the section's begin and end. For an image that is an offload binary,
the images in it are registered.

Two generations are in use; the struct and the deregistration differ::

    generation   entries' section           unregistered by       struct of an entry
    ----------   ------------------------   -------------------   ------------------------
    22           llvm_offload_entries       atexit (constructor   i64 reserved, i16 version,
                                            of priority 101)      i16 kind, i32 flags,
                                                                  ptr address, ptr name,
                                                                  i64 size, i64 data, ptr aux
    15           omp_offloading_entries     destructor            ptr address, ptr name,
    (openmp)                                (priority 1)          i64 size, i32 flags,
                                                                  i32 reserved

The objects of clang 19 and 20 have generation 15's section and struct; their linker wrapper
unregisters as 22 does. With `Registration.finds_entries` the linker decides: its symbols for the
older section are null where no object has it.

With target IDs, each image also has a string ``__offload_arch[.N]`` in section
``.offload_arch_list``, the list of a program's targets. A second object is
``.offload_image_info[.N]``, {i32 version, i32 image number, i32 number of images, ptr offload arch,
ptr compile options}. The constructor calls ``__tgt_register_image_info`` for each first. LLVM's
runtimes lack that function, AMD's had it: in generation 22 the call depends on its presence.

The text for bitcode has the images' bytes. That for an object has a placeholder for each, which
`objects.splice_images` replaces.

Generation 23 is 22 with three changes: sanitizers skip the wrappers, sections for Mach-O are
Darwin's, and relocatable OpenMP images have a section of their own.

Source: llvm-offload-wrapper 22.1.8 and 23.1, and clang-offload-wrapper 15.0.6, observed: the
disassembly is equal. The Clang Offload Wrapper document for the additions with target IDs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from offload_tool.formats.targets import triple as triples
from offload_tool.util.frozen import frozen

RegisteredKind: TypeAlias = Literal["openmp", "cuda", "hip"]
Generation: TypeAlias = Literal[22, 15, 23]

REGISTERED_KINDS: tuple[RegisteredKind, ...] = ("openmp", "cuda", "hip")
_MACHO_NAMES = {
    "@__start_llvm_offload_entries": '@"\\01section$start$__LLVM$offload_entries"',
    "@__stop_llvm_offload_entries": '@"\\01section$end$__LLVM$offload_entries"',
    "@__dummy.llvm_offload_entries": '@"__dummy.__LLVM,offload_entries"',
    'section "llvm_offload_entries"': 'section "__LLVM,offload_entries"',
    'section ".text.startup"': 'section "__TEXT,__StaticInit"',
}
"""Replaces the usual names in generation 23 for Mach-O."""
_OLD_ENTRIES = "omp_offloading_entries"
SECTION_MARK = "offload.image."
"""In text for an object, image N is three bytes in section ``offload.image.N<section>``."""
_CHUNK = 1 << 20  # bytes of an image in a piece of text
_PLACEHOLDER, _PLACEHOLDER_SIZE = 'c"\\01\\02\\03"', 3
"""Not a string (no final NUL), and of a size without sections of mergeable constants."""


@frozen
class RegisteredImage:
    """A file to register: the ranges for the runtime, in bytes."""

    ranges: tuple[tuple[int, int], ...]
    """Begin and end of the file, or of each image in it."""
    target_id: str | None = None


@frozen
class Registration:
    """The input of a module."""

    kind: RegisteredKind
    triple: str
    images: Sequence[RegisteredImage]
    generation: Generation = 22
    is_relocatable: bool = False
    """Whether the images are relocatable OpenMP code (generation 23)."""
    finds_entries: bool = False
    """Whether an OpenMP module serves objects with either section of entries (generation 22)."""


def image_section(registration: Registration) -> str:
    """Return the section for the images; empty for the compiler's choice."""
    if registration.generation == 15:
        return ""
    if registration.kind == "cuda" and _object_format(registration) == "macho":
        return "__NV_CUDA,__nv_fatbin"
    if registration.kind == "hip" and _is_macho_23(registration):
        return "__HIP,__hip_fatbin"
    offloading = ".llvm.offloading" + (".relocatable" if registration.is_relocatable else "")
    return {"openmp": offloading, "cuda": ".nv_fatbin", "hip": ".hip_fatbin"}[registration.kind]


def _is_macho_23(registration: Registration) -> bool:
    return registration.generation == 23 and _object_format(registration) == "macho"


def bitcode_text(registration: Registration, contents: Sequence[memoryview]) -> Iterator[str]:
    """Yield the module of images with these contents as LLVM IR, in pieces."""
    section = image_section(registration)
    suffix = f', section "{section}"' if section else ""
    if registration.kind == "openmp" and section:
        suffix += ", align 8"
    texts = [_ImageText(suffix, len(content)) for content in contents]
    begin, *others = _ModuleText(registration, texts).text().split(_PLACEHOLDER)
    yield begin
    for content, after in zip(contents, others, strict=True):
        yield 'c"'
        for at in range(0, len(content), _CHUNK):
            yield f"\\{content[at : at + _CHUNK].hex(chr(92))}"
        yield f'"{after}'


def object_text(registration: Registration) -> str:
    """Return the module as LLVM IR; images are three bytes, each in a section of its own.

    In ELF the constructor is an entry of an init array, as in clang's output: of a table of
    constructors LLVM's code generator would make ``.ctors``, which some linkers do not support.
    """
    object_format = _object_format(registration)
    default = ".rdata" if object_format == "coff" else ".rodata"
    section = image_section(registration) or default
    # HIP's modules specify no alignment, but clang aligns the fat binaries that it embeds to 4096
    # bytes. The other values are those of LLVM's code generator.
    openmp = 16 if registration.generation == 15 else 8
    alignment = {"hip": 4096, "cuda": 16, "openmp": openmp}[registration.kind]
    texts = [
        _ImageText(f', section "{SECTION_MARK}{number}{section}", align {alignment}')
        for number in range(len(registration.images))
    ]
    return _ModuleText(registration, texts, init_arrays=object_format == "elf").text()


def _object_format(registration: Registration) -> str:
    return triples.meaning(registration.triple).object_format


@frozen
class _ImageText:
    """The text of an image's global, with a placeholder for its array."""

    suffix: str
    size: int | None = None
    """Bytes in text for bitcode; None where the placeholder stays."""

    @property
    def type(self) -> str:
        return f"[{_PLACEHOLDER_SIZE if self.size is None else self.size} x i8]"

    @property
    def definition(self) -> str:
        return f"{self.type} {_PLACEHOLDER}{self.suffix}"

    def at(self, name: str, offset: int) -> str:
        if not offset:
            return f"ptr {name}"
        if self.size is None:
            return f"ptr getelementptr (i8, ptr {name}, i64 {offset})"
        return f"ptr getelementptr ({self.type}, ptr {name}, i64 0, i64 {offset})"

    def past(self, name: str) -> str:
        """Return the address after the global, as generation 15 writes it in bitcode."""
        if not self.size:
            return f"ptr {name}"
        return f"ptr getelementptr inbounds ({self.type}, ptr {name}, i64 1, i64 0)"


class _ModuleText:
    """Writes one module's text, in LLVM's order of globals and functions."""

    def __init__(
        self, registration: Registration, images: Sequence[_ImageText], *, init_arrays: bool = False
    ) -> None:
        self.registration = registration
        self.is_15 = registration.generation == 15
        self.images = images
        self.init_arrays = init_arrays
        """Whether to write entries of init arrays instead of constructor tables."""
        self.lines: list[str] = []
        self.used: list[str] = []

    def text(self) -> str:
        registration = self.registration
        self.lines = [f'source_filename = "offload.wrapper.{"object" if self.is_15 else "module"}"']
        if registration.triple:
            self._add(f'target triple = "{_escaped(registration.triple)}"')
        if self.is_15:
            self._entries_15()
        else:
            self._entries()
        if registration.kind == "openmp":
            self._openmp()
        else:
            self._fatbin()
        if self.init_arrays:
            self._add_used()
        text = "\n".join(self.lines) + "\n"
        if _is_macho_23(registration):
            for usual, darwin in _MACHO_NAMES.items():
                text = text.replace(usual, darwin)
        return text

    def _entries(self) -> None:
        entry = "%struct.__tgt_offload_entry"
        self._add(f"{entry} = type {{ i64, i16, i16, i32, ptr, ptr, i64, i64, ptr }}")
        object_format = _object_format(self.registration)
        for name, end in (("start", "A"), ("stop", "Z")):
            section = f', section "llvm_offload_entries$O{end}"'
            linkage, value = "external hidden", ""
            if object_format == "coff":
                linkage, value = "weak_odr hidden", " zeroinitializer"
            elif object_format == "elf" or _is_macho_23(self.registration):
                section = ""
            self._add(
                f"@__{name}_llvm_offload_entries = {linkage} constant [0 x {entry}]{value}{section}"
            )
        if object_format == "elf" or _is_macho_23(self.registration):
            self._add(
                f"@__dummy.llvm_offload_entries = internal constant [0 x {entry}] "
                'zeroinitializer, section "llvm_offload_entries", align 8'
            )
            self.used.append("@__dummy.llvm_offload_entries")
            if not self.init_arrays:
                self._add_used()

    def _entries_15(self) -> None:
        entry = "%__tgt_offload_entry"
        self._add(f"{entry} = type {{ ptr, ptr, i64, i32, i32 }}")
        for name in ("start", "stop"):
            self._add(f"@__{name}_{_OLD_ENTRIES} = external hidden constant {entry}")
        self._add(
            f"@__dummy.omp_offloading.entry = hidden constant [0 x {entry}] zeroinitializer, "
            f'section "{_OLD_ENTRIES}"'
        )

    def _openmp(self) -> None:
        self._descriptor(_OLD_ENTRIES if self.is_15 else "llvm_offload_entries")
        infos = self._image_infos()
        calls = [f"call void @__tgt_register_image_info(ptr {info})" for info in infos]
        descriptor = "@.omp_offloading.descriptor"
        finds, used = [], descriptor
        if self.registration.finds_entries:
            self._older_descriptor()
            finds, used = [f"%used = call ptr {descriptor}_used()"], "%used"
        calls_last = [*finds, f"call void @__tgt_register_lib(ptr {used})"]
        if self.is_15:
            self._constructor("llvm.global_ctors", 1, f"{descriptor}_reg")
            self._constructor("llvm.global_dtors", 1, f"{descriptor}_unreg")
        else:
            self._constructor("llvm.global_ctors", 101, f"{descriptor}_reg")
            if calls:
                calls = [*_IF_KNOWN, *calls, "br label %images", "images:"]
            calls_last.append(f"%0 = call i32 @atexit(ptr {descriptor}_unreg)")
        self._function(f"void {descriptor}_reg()", *calls, *calls_last, "ret void")
        if infos:
            linkage = "" if self.is_15 else "extern_weak "
            self._add(f"declare {linkage}void @__tgt_register_image_info(ptr)")
        self._add("declare void @__tgt_register_lib(ptr)")
        if not self.is_15:
            self._add("declare i32 @atexit(ptr)")
        self._function(
            f"void {descriptor}_unreg()",
            *finds,
            f"call void @__tgt_unregister_lib(ptr {used})",
            "ret void",
        )
        self._add("declare void @__tgt_unregister_lib(ptr)")

    def _older_descriptor(self) -> None:
        """Write a second descriptor, and the function that returns the one to register."""
        descriptor = "@.omp_offloading.descriptor"
        for name in ("start", "stop"):
            self._add(f"@__{name}_{_OLD_ENTRIES} = extern_weak hidden constant [0 x i8]")
        self._tables(_OLD_ENTRIES, ".older")
        self._function(
            f"ptr {descriptor}_used()",
            f"%field = getelementptr %__tgt_bin_desc, ptr {descriptor}.older, i64 0, i32 2",
            "%entries = load volatile ptr, ptr %field",
            "%is_older = icmp ne ptr %entries, null",
            f"%used = select i1 %is_older, ptr {descriptor}.older, ptr {descriptor}",
            "ret ptr %used",
        )

    def _fatbin(self) -> None:
        kind = self.registration.kind
        image = self.images[0]
        magic, segment = {
            "cuda": (0x466243B1, ".nvFatBinSegment"),
            "hip": (0x48495046, ".hipFatBinSegment"),
        }[kind]
        if kind == "cuda" and _object_format(self.registration) == "macho":
            segment = "__NV_CUDA,__fatbin"
        elif _is_macho_23(self.registration):
            segment = "__HIP,__fatbin"
        unchecked = ""
        if self.registration.generation == 23:
            unchecked = ", no_sanitize_address, no_sanitize_hwaddress"
        self._add("%fatbin_wrapper = type { i32, i32, ptr, ptr }")
        self._add(f"@.fatbin_image = internal constant {image.definition}")
        self._add(
            f"@.fatbin_wrapper = internal constant %fatbin_wrapper {{ i32 {magic}, i32 1, "
            f'ptr @.fatbin_image, ptr null }}, section "{segment}"{unchecked}, align 8'
        )
        self._add(f"@.{kind}.binary_handle = internal global ptr null")
        self._constructor("llvm.global_ctors", 101, f"@.{kind}.fatbin_reg")
        registered = [f"call void @__{kind}RegisterFatBinaryEnd(ptr %0)"] * (kind == "cuda")
        self._function(
            f"void @.{kind}.fatbin_reg()",
            f"%0 = call ptr @__{kind}RegisterFatBinary(ptr @.fatbin_wrapper)",
            f"store ptr %0, ptr @.{kind}.binary_handle, align 8",
            f"call void @.{kind}.globals_reg(ptr %0)",
            *registered,
            f"%1 = call i32 @atexit(ptr @.{kind}.fatbin_unreg)",
            "ret void",
        )
        self._function(
            f"void @.{kind}.fatbin_unreg()",
            f"%0 = load ptr, ptr @.{kind}.binary_handle, align 8",
            f"call void @__{kind}UnregisterFatBinary(ptr %0)",
            "ret void",
        )
        text = _FATBIN_RUNTIME
        for mark, value in (
            # For CUDA, the tool leaves the cases of surfaces and textures empty.
            ("SURFACE", _SURFACE_CALL if kind == "hip" else ""),
            ("TEXTURE", _TEXTURE_CALL if kind == "hip" else ""),
            ("NUMBER", {"cuda": "2", "hip": "4"}[kind]),
            ("KIND", kind),
        ):
            text = text.replace(mark, value)
        self._add(text)

    def _image_infos(self) -> list[str]:
        """Write the objects with the images' target IDs; return their names."""
        images = self.registration.images
        if not any(image.target_id is not None for image in images):
            return []
        self._add("%__tgt_image_info = type { i32, i32, i32, ptr, ptr }")
        names = []
        for number, image in enumerate(images):
            arch = self._name("@__offload_arch", number)
            info = self._name("@.offload_image_info", number)
            text = (image.target_id or "").encode("utf-8", "surrogateescape")
            # Alignment 1: no padding between the strings of the list.
            self._add(
                f'{arch} = internal constant [{len(text) + 1} x i8] c"{_escaped(text)}\\00", '
                'section ".offload_arch_list", align 1'
            )
            self._add(
                f"{info} = internal constant %__tgt_image_info {{ i32 1, "  # the version
                f"i32 {number}, i32 {len(images)}, ptr {arch}, ptr null }}"
            )
            names.append(info)
        return names

    def _descriptor(self, section: str) -> None:
        for number, image in enumerate(self.images):
            name = self._name("@.omp_offloading.device_image", number)
            self._add(f"{name} = internal unnamed_addr constant {image.definition}")
        self._add("%__tgt_device_image = type { ptr, ptr, ptr, ptr }")
        self._add("%__tgt_bin_desc = type { i32, ptr, ptr, ptr }")
        self._tables(section)

    def _tables(self, section: str, suffix: str = "") -> None:
        """Write the array of images, and the descriptor, with the entries of a section."""
        begin, end = f"ptr @__start_{section}", f"ptr @__stop_{section}"
        rows = []
        for number, image in enumerate(self.images):
            name = self._name("@.omp_offloading.device_image", number)
            for start, stop in self.registration.images[number].ranges:
                last = image.at(name, stop)
                if self.is_15 and image.size is not None:
                    last = image.past(name)
                row = f"{image.at(name, start)}, {last}, {begin}, {end}"
                rows.append(f"%__tgt_device_image {{ {row} }}")
        count, images = len(rows), f"@.omp_offloading.device_images{suffix}"
        self._add(
            f"{images} = internal unnamed_addr constant "
            f"[{count} x %__tgt_device_image] [{', '.join(rows)}]"
        )
        self._add(
            f"@.omp_offloading.descriptor{suffix} = internal constant %__tgt_bin_desc "
            f"{{ i32 {count}, ptr {images}, {begin}, {end} }}"
        )

    def _add(self, line: str) -> None:
        self.lines.append(line)

    def _name(self, name: str, number: int) -> str:
        """Return the name that LLVM gives to global number `number` for `name`."""
        dot = "" if triples.meaning(self.registration.triple).arch.startswith("nvptx") else "."
        return f"{name}{dot}{number}" if number else name

    def _constructor(self, table: str, priority: int, function: str) -> None:
        if self.init_arrays:
            section = ".init_array" if table == "llvm.global_ctors" else ".fini_array"
            entry = f"{function}.entry"
            self._add(f'{entry} = private constant ptr {function}, section "{section}.{priority}"')
            self.used.append(entry)
            return
        row = f"{{ i32, ptr, ptr }} {{ i32 {priority}, ptr {function}, ptr null }}"
        self._add(f"@{table} = appending global [1 x {{ i32, ptr, ptr }}] [{row}]")

    def _add_used(self) -> None:
        names = ", ".join(f"ptr {name}" for name in self.used)
        self._add(
            f"@llvm.compiler.used = appending global [{len(self.used)} x ptr] [{names}], "
            'section "llvm.metadata"'
        )

    def _function(self, head: str, *body: str) -> None:
        self._add(f'define internal {head} section ".text.startup" {{')
        self.lines += ["entry:", *(f"  {line}" for line in body), "}"]


_IF_KNOWN = (
    "%known = icmp ne ptr @__tgt_register_image_info, null",
    "br i1 %known, label %infos, label %images",
    "infos:",
)


def _escaped(text: str | bytes) -> str:
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:02X}"
        for byte in data
    )


_SURFACE_CALL = (
    "  call void @__KINDRegisterSurface(ptr %0, ptr %addr, ptr %name, ptr %name, i32 %9, "
    "i32 %extern)\n"
)
_TEXTURE_CALL = (
    "  call void @__KINDRegisterTexture(ptr %0, ptr %addr, ptr %name, ptr %name, i32 %9, "
    "i32 %normalized, i32 %extern)\n"
)
_FATBIN_RUNTIME = """\
declare ptr @__KINDRegisterFatBinary(ptr)
declare void @__cudaRegisterFatBinaryEnd(ptr)
declare void @__KINDUnregisterFatBinary(ptr)
declare i32 @atexit(ptr)
declare i32 @__KINDRegisterFunction(ptr, ptr, ptr, ptr, i32, ptr, ptr, ptr, ptr, ptr)
declare void @__KINDRegisterVar(ptr, ptr, ptr, ptr, i32, i64, i32, i32)
declare void @__KINDRegisterManagedVar(ptr, ptr, ptr, ptr, i64, i32)
declare void @__KINDRegisterSurface(ptr, ptr, ptr, ptr, i32, i32)
declare void @__KINDRegisterTexture(ptr, ptr, ptr, ptr, i32, i32, i32)
define internal void @.KIND.globals_reg(ptr %0) section ".text.startup" {
entry:
  %1 = icmp ne ptr @__start_llvm_offload_entries, @__stop_llvm_offload_entries
  br i1 %1, label %while.entry, label %while.end
while.entry:
  %entry1 = phi ptr [ @__start_llvm_offload_entries, %entry ], [ %16, %if.end ]
  %2 = getelementptr inbounds %struct.__tgt_offload_entry, ptr %entry1, i32 0, i32 4
  %addr = load ptr, ptr %2, align 8
  %3 = getelementptr inbounds %struct.__tgt_offload_entry, ptr %entry1, i32 0, i32 8
  %aux_addr = load ptr, ptr %3, align 8
  %4 = getelementptr inbounds %struct.__tgt_offload_entry, ptr %entry1, i32 0, i32 2
  %kind = load i16, ptr %4, align 2
  %5 = getelementptr inbounds %struct.__tgt_offload_entry, ptr %entry1, i32 0, i32 5
  %name = load ptr, ptr %5, align 8
  %6 = getelementptr inbounds %struct.__tgt_offload_entry, ptr %entry1, i32 0, i32 6
  %size = load i64, ptr %6, align 4
  %7 = getelementptr inbounds %struct.__tgt_offload_entry, ptr %entry1, i32 0, i32 3
  %flags = load i32, ptr %7, align 4
  %8 = getelementptr inbounds %struct.__tgt_offload_entry, ptr %entry1, i32 0, i32 7
  %data = load i64, ptr %8, align 4
  %9 = trunc i64 %data to i32
  %type = and i32 %flags, 7
  %10 = and i32 %flags, 8
  %extern = lshr i32 %10, 3
  %11 = and i32 %flags, 16
  %constant = lshr i32 %11, 4
  %12 = and i32 %flags, 32
  %normalized = lshr i32 %12, 5
  %13 = icmp eq i16 %kind, NUMBER
  br i1 %13, label %if.kind, label %if.end
if.kind:
  %14 = icmp eq i64 %size, 0
  br i1 %14, label %if.then, label %if.else
if.then:
  %15 = call i32 @__KINDRegisterFunction(ptr %0, ptr %addr, ptr %name, ptr %name, i32 -1, \
ptr null, ptr null, ptr null, ptr null, ptr null)
  br label %if.end
if.else:
  switch i32 %type, label %if.end [
    i32 0, label %sw.global
    i32 1, label %sw.managed
    i32 2, label %sw.surface
    i32 3, label %sw.texture
  ]
sw.global:
  call void @__KINDRegisterVar(ptr %0, ptr %addr, ptr %name, ptr %name, i32 %extern, \
i64 %size, i32 %constant, i32 0)
  br label %if.end
sw.managed:
  call void @__KINDRegisterManagedVar(ptr %0, ptr %aux_addr, ptr %addr, ptr %name, \
i64 %size, i32 %9)
  br label %if.end
sw.surface:
SURFACE  br label %if.end
sw.texture:
TEXTURE  br label %if.end
if.end:
  %16 = getelementptr inbounds %struct.__tgt_offload_entry, ptr %entry1, i64 1
  %17 = icmp eq ptr %16, @__stop_llvm_offload_entries
  br i1 %17, label %while.end, label %while.entry
while.end:
  ret void
}"""
