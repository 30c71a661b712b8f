"""The actions of the tool's nodes, and the builder of nodes with each action.

Operations run inside SCons. The signature of such an action has its verb, `FORMAT_VERSION` and the
spec (``_OFFLOAD_SPEC``): the options that affect the result. Checks of what a command has made sign
their verb alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import SCons.Action
import SCons.Errors

from offload_tool.errors import NoContainerError, OffloadError, UsageError
from offload_tool.formats import FORMAT_VERSION
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID
from offload_tool.passes.verify_output import (
    blaming_launcher,
    check_cubin,
    check_holds_code,
    check_image,
    check_no_entries,
)
from offload_tool.scons import compat
from offload_tool.scons.graph.declare import NodeBuilder
from offload_tool.scons.state.node_classes import PassOutput
from offload_tool.scons.state.node_info import code_of, info_of, records_of
from offload_tool.scons.state.node_resolver import depfile_of
from offload_tool.scons.state.scanner import DEPENDENCY_SCANNER, NO_SCANNER, flags_scanner
from offload_tool.scons.types import Environment, Node


class Operands:
    """The inputs and the output of an action."""

    def __init__(self, node: Node, sources: list[Node], env: Environment) -> None:
        self.node = node
        self.sources = sources
        self.output = str(node)
        self.inputs = [str(source) for source in sources]
        self.env = env

    @cached_property
    def spec(self) -> Any:
        """The options in the action's signature: see `spec`."""
        return json.loads(self.env["_OFFLOAD_SPEC"])

    @property
    def clang(self) -> list[str]:
        """The first arguments of the compiler's command."""
        return [*self.env["_OFFLOAD_CLANG"], *self.env["_OFFLOAD_LOCAL_FLAGS"]]

    def warn(self, text: str) -> None:
        """Print an operation's warning, as the command line does."""
        sys.stderr.write(f"offload: warning: [{self.output}] {text}\n")


# The operations are imported where they are used: a build of one language needs few of them.


def _finish_compile(given: Operands) -> None:
    records = records_of(given.node)
    is_launched = bool(given.env["OFFLOAD_LAUNCHER"] or given.env["OFFLOAD_DIST"])
    try:
        with blaming_launcher(is_launched=is_launched):
            records.job.check(given.output, given.inputs[1] if len(given.inputs) > 1 else None)
        records.finish_compile()
    finally:
        Path(depfile_of(given.node)).unlink(missing_ok=True)


def _archive(given: Operands) -> None:
    from offload_tool.operations.archive import create_archive

    create_archive([(os.path.basename(path), path) for path in given.inputs], given.output)


def _bundle(given: Operands) -> None:
    from offload_tool.operations.bundle import bundle_files

    spec = given.spec
    items = [
        (BundleEntryID.read(entry), None if index is None else given.inputs[index])
        for entry, index in spec["entries"]
    ]
    for entry, path in items:
        if spec["file_type"] == "o" and entry.kind == "host" and path is not None:
            check_holds_code(path)
    bundle_files(
        items,
        given.output,
        file_type=spec["file_type"],
        alignment=spec["alignment"],
        compression=_compression(spec),
        warn=given.warn,
    )


def _compression(spec: Any) -> Any:
    from offload_tool.operations.bundle import Compression

    method, *settings = spec["compression"]
    return Compression(method, *settings) if method else None


def _device_archive(given: Operands) -> None:
    from offload_tool.containers.find import find_containers
    from offload_tool.operations.unarchive import (
        ArchiveOptions,
        MissingCodeObjectError,
        unbundle_archive,
    )

    spec = given.spec
    outputs = {BundleEntryID.parse(spec["entry"]): given.output}
    options = ArchiveOptions(offload_binaries=True, **spec.get("options", {}))
    try:
        unbundle_archive(
            given.inputs[0], outputs, options=options, keep_equal=True, warn=given.warn
        )
    except MissingCodeObjectError as error:
        found: set[str] = set()
        with suppress(NoContainerError):
            for container in find_containers(given.inputs[0]):
                found |= {image.id for image in container.images if image.kind != "host"}
        raise UsageError(
            f"{error}, but for {', '.join(sorted(found)) or 'none'}; build it for this target, too"
        ) from None


def _cuda_archive(given: Operands) -> None:
    from offload_tool.operations.unarchive_cuda import unbundle_cuda_library

    processor, missing = given.spec["processor"], given.spec["allow_missing"]
    unbundle_cuda_library(given.inputs[0], given.output, processor, allow_missing=missing)


def _embed(given: Operands) -> None:
    from offload_tool.operations.embed import EmbedOptions, embed_bundle, embed_tools_marker

    spec = given.spec
    if spec.get("for_tools", False):
        embed_tools_marker(given.inputs[0], given.output, host_triple=spec["host_triple"])
        return
    # Without host objects, the linker decides whether one refers to the bundle.
    embed_bundle(
        given.inputs[0],
        given.output,
        host_triple=spec["host_triple"],
        cuid=spec["cuid"],
        host_files=given.inputs[1:],
        options=EmbedOptions(
            registers_entries=spec["registers_entries"],
            is_marker=spec.get("marker", False),
            as_archive=spec["cuid"] is not None,
            library=spec.get("library", ""),
        ),
    )


def _embed_cuda(given: Operands) -> None:
    from offload_tool.operations.embed import embed_cuda_fatbin

    host, fatbin = given.inputs
    if given.spec.get("relocatable", False):
        check_no_entries(host)
    embed_cuda_fatbin(host, fatbin, given.output)


def _embed_linked_cuda(given: Operands) -> None:
    from offload_tool.nvidia.linked_fatbin import embed_fat_binaries

    linked, *rest = given.inputs
    count = given.spec["sources"]
    embed_fat_binaries(
        given.output,
        given.env["_OFFLOAD_CC"],
        given.env["ENV"],
        linked,
        rest[:count],
        others=rest[count:],
        runtimes=given.env["_OFFLOAD_LINK_LIBRARIES"],
        library=given.spec.get("library", ""),
    )


def _register_cuda(given: Operands) -> None:
    from offload_tool.nvidia.linked_fatbin import compile_registration, starts_kernels
    from offload_tool.passes.registration import library_flags

    env, files = given.env, given.inputs[1:]
    hosts = files[given.spec["sources"] :]
    # Not always: two libraries with device links of their own may not register the same module.
    runtimes = env["_OFFLOAD_LINK_LIBRARIES"] if any(map(starts_kernels, files)) else []
    command = [*env["_OFFLOAD_CC"], *library_flags(given.spec.get("library", ""))]
    compile_registration(given.output, command, env["ENV"], hosts, runtimes)


def _merge_library(given: Operands) -> None:
    from offload_tool.passes.registration import merge_library

    env, spec = given.env, given.spec
    count = len(given.inputs) - spec["libraries"]
    files, libraries = given.inputs[:count], given.inputs[count:]
    merge_library(given.output, env["_OFFLOAD_LLD"], env["ENV"], files, libraries, spec["library"])


def _link_cuda(given: Operands) -> None:
    from offload_tool.nvidia.nvlink import link_cubins

    env = given.env
    command = [*env["_OFFLOAD_LINKER"], *given.spec["arguments"]]
    link_cubins(given.output, command, given.inputs, env["ENV"], env["_OFFLOAD_LINK_LIBRARIES"])
    check_cubin(given.output)


def _embed_package(given: Operands) -> None:
    from offload_tool.operations.embed import embed_offload_binary

    host, package = given.inputs
    check_holds_code(host)
    embed_offload_binary(host, package, given.output)


def _extract(given: Operands) -> None:
    from offload_tool.operations.unpackage import (
        ExtractOptions,
        ImageFilter,
        SeveralImagesError,
        extract_images,
    )

    spec = given.spec
    strings = dict(spec["strings"])
    triple = strings.pop("triple")
    wanted = ImageFilter(strings, spec["kind"], given.output, triple=triple)
    options = ExtractOptions(archive=spec.get("archive", False), one_each=True)
    try:
        written = extract_images(given.inputs[0], [wanted], options=options, warn=given.warn)
    except SeveralImagesError as error:
        way_out = "OFFLOAD_EXTRACT_ARCHIVE=True makes an archive of them"
        raise UsageError(f"{error}; {way_out}") from None
    if not written:
        text = ", ".join(f"{key} {value}" for key, value in spec["strings"].items())
        raise UsageError(
            f"'{given.inputs[0]}': no image of {spec['kind']} with {text}; "
            "'offload-tool list' shows what there is"
        )


def _fatbin(given: Operands) -> None:
    from offload_tool.operations.embed import write_cuda_fatbin

    options = {**given.spec}
    images = list(zip(options.pop("processors"), given.inputs, strict=True))
    write_cuda_fatbin(images, given.output, **options)


def _kpack(given: Operands) -> None:
    from offload_tool.formats.kpack.archive import kernel_key
    from offload_tool.operations.embed import CodeFile, interface_of, pack_code_objects

    codes = info_of(given.node).archive_codes.values()
    first = next(iter(codes))
    packing, target_id = first.packing, code_of(first.node).device.name
    files = []
    for code in codes:
        path = str(code.node)
        suffix = f"@{interface_of([path])}" if packing.interface else ""
        files.append(CodeFile(kernel_key(code.kernel_name + suffix), target_id, path))
    group, scheme = packing.group, packing.scheme
    pack_code_objects(files, given.output, group=group, target_ids=[target_id], scheme=scheme)


def _mark(given: Operands) -> None:
    from offload_tool.operations.embed import mark_host_file

    mark_host_file(given.inputs[0], given.output)


def _marker(given: Operands) -> None:
    from offload_tool.formats.kpack.marker import KpackMarker
    from offload_tool.operations.embed import interface_of, write_marker

    spec = given.spec
    suffix = f"@{interface_of(given.inputs)}" if spec["interface"] else ""
    marker = KpackMarker(spec["kernel_name"] + suffix, tuple(spec["paths"]))
    write_marker(marker, given.output)


def _package(given: Operands) -> None:
    from offload_tool.formats.offload_binary import ImageKind
    from offload_tool.operations.package import PackagedImage, package_images

    images = []
    base = given.inputs[-1] if given.spec.get("base", False) else None
    for file, values in zip(given.inputs, given.spec["images"], strict=base is None):
        strings = {key: values[key] for key in ("triple", "arch") if values[key]}
        strings.update(values.get("keys", {}))
        image_kind = ImageKind[values["image_kind"]] if "image_kind" in values else None
        images.append(PackagedImage(file, strings, values["kind"], image_kind))
    package_images(images, given.output, base=base)


def _repack(given: Operands) -> None:
    from offload_tool.operations.bundle import repack_bundle

    compression, alignment = _compression(given.spec), given.spec["alignment"]
    repack_bundle(given.inputs[0], given.output, compression=compression, alignment=alignment)


def _unbundle(given: Operands) -> None:
    from offload_tool.operations.unbundle import unbundle_file

    outputs = {BundleEntryID.parse(given.spec["entry"]): given.output}
    unbundle_file(given.inputs[0], outputs, one_each=True, **given.spec.get("options", {}))


def _wrap(given: Operands) -> None:
    from offload_tool.operations.wrap import WrapOptions, wrap_images
    from offload_tool.passes.registration import HostCompiler

    options = {**given.spec}
    kind, triple = options.pop("kind"), options.pop("triple")
    wrap_images(
        given.inputs,
        given.output,
        kind=kind,
        triple=triple,
        # Target IDs were read where the builder was called.
        options=WrapOptions(**options, allow_unknown=True),
        compiler=HostCompiler(given.clang, given.env["ENV"]),
        warn=given.warn,
    )


def spec(**values: Any) -> str:
    """Return the text that represents an operation's options in its signature."""
    return json.dumps(values, sort_keys=True)


def action(verb: str, do: Callable[[Operands], None], **keywords: Any) -> compat.SignedAction:
    """Return an action that converts errors to SCons's, and removes the output of a failed one."""

    def run(target: list[Node], source: list[Node], env: Environment) -> int:
        try:
            do(Operands(target[0], source, env))
        except OffloadError as error:
            Path(target[0].get_abspath()).unlink(missing_ok=True)
            raise SCons.Errors.BuildError(node=target[0], errstr=str(error)) from error
        return 0

    return compat.SignedAction(f" offload {verb} ", run, **keywords)


def check(verb: str, do: Callable[[Operands], None]) -> compat.SignedAction:
    """Return the action of a check, which SCons does not show."""
    return action(verb, do, cmdstr=None)


def _operation(verb: str, do: Callable[[Operands], None], message: str) -> NodeBuilder:
    keywords = {"cmdstr": f"$OFFLOAD{message}COMSTR", "varlist": ("_OFFLOAD_SPEC",)}
    return NodeBuilder(action(f"{verb} {FORMAT_VERSION}", do, **keywords))


def _command(name: str, check: Any = None, **made: Any) -> NodeBuilder:
    command = SCons.Action.Action(f"$OFFLOAD{name}COM", f"$OFFLOAD{name}COMSTR")
    return NodeBuilder(SCons.Action.Action([command, *([check] if check else [])]), **made)


def _pass_command(name: str) -> compat.PassCommandAction:
    return compat.PassCommandAction(f"OFFLOAD{name}COM", {"cmdstr": f"$OFFLOAD{name}COMSTR"})


def _pass(name: str, **made: Any) -> NodeBuilder:
    actions = [
        check("begin compile", lambda given: records_of(given.node).begin_compile()),
        _pass_command(name),
        check("finish compile", _finish_compile),
    ]
    return NodeBuilder(SCons.Action.Action(actions), PassOutput, source_scanner=NO_SCANNER, **made)


DEVICE = _pass("DEVICE", target_scanner=DEPENDENCY_SCANNER)
HOST = _pass("HOST", target_scanner=DEPENDENCY_SCANNER)
HOST_FROM_IR = _pass("HOSTIR")
_OF_LINKS = {"target_scanner": flags_scanner("OFFLOAD_LINK_FLAGS")}
_CHECK_IMAGE = check(
    "check image", lambda given: check_image(given.output, code_of(given.node).device)
)
LINK = _command("LINK", _CHECK_IMAGE, **_OF_LINKS)
OPENMP_LINK = NodeBuilder(SCons.Action.Action([_pass_command("LINK"), _CHECK_IMAGE]), **_OF_LINKS)
MERGE = _command("MERGE")
PTXAS = _command(
    "PTXAS",
    check(
        "check cubin",
        lambda given: check_cubin(given.output, rdc=code_of(given.node).relocatable),
    ),
    target_scanner=flags_scanner("OFFLOAD_PTXAS_FLAGS"),
)
REGISTER = _command("REGISTER")
MERGE_LIBRARY = _operation("merge library", _merge_library, "MERGE")
ARCHIVE = _operation("archive", _archive, "ARCHIVE")
BUNDLE = _operation("bundle", _bundle, "BUNDLE")
CUDA_ARCHIVE = _operation("cuda archive", _cuda_archive, "DEVICEARCHIVE")
DEVICE_ARCHIVE = _operation("device archive", _device_archive, "DEVICEARCHIVE")
EMBED = _operation("embed", _embed, "EMBED")
EMBED_CUDA = _operation("embed cuda", _embed_cuda, "EMBED")
EMBED_PACKAGE = _operation("embed package", _embed_package, "EMBED")
EMBED_LINKED_CUDA = _operation("embed linked cuda", _embed_linked_cuda, "EMBED")
REGISTER_CUDA = _operation("register cuda", _register_cuda, "REGISTER")
KPACK = _operation("kpack", _kpack, "KPACK")
MARK = _operation("mark", _mark, "MARK")
MARKER = _operation("marker", _marker, "MARKER")
LINK_CUDA = _operation("link cuda", _link_cuda, "CUDALINK")
EXTRACT = _operation("extract", _extract, "EXTRACT")
FATBIN = _operation("fatbin", _fatbin, "FATBIN")
PACKAGE = _operation("package", _package, "PACKAGE")
REPACK = _operation("repack", _repack, "REPACK")
UNBUNDLE = _operation("unbundle", _unbundle, "UNBUNDLE")
WRAP = _operation("wrap", _wrap, "WRAP")
