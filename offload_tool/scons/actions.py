"""The actions of the tool's nodes, and the builder of nodes with each action.

Operations run inside SCons. The signature of such an action has its verb, `FORMAT_VERSION` and its
options (``_OFFLOAD_SPEC``). Checks of what a command has made sign their verb alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import SCons.Action
import SCons.Errors

from offload_tool.errors import NoContainerError, OffloadError, UsageError
from offload_tool.formats import FORMAT_VERSION
from offload_tool.formats.kpack.archive import kernel_key
from offload_tool.formats.kpack.marker import KpackMarker
from offload_tool.formats.targets.bundle_entry_id import BundleEntryID
from offload_tool.passes.registration import HostCompiler, library_flags, merge_library
from offload_tool.passes.verify_output import (
    blaming_launcher,
    check_cubin,
    check_holds_code,
    check_image,
    check_no_entries,
)
from offload_tool.scons import compat
from offload_tool.scons.graph.declare import NodeBuilder
from offload_tool.scons.signature import signed_text
from offload_tool.scons.state.node_classes import PassOutput
from offload_tool.scons.state.node_info import code_of, info_of, records_of
from offload_tool.scons.state.node_resolver import depfile_of
from offload_tool.scons.state.scanner import DEPENDENCY_SCANNER, flags_scanner
from offload_tool.scons.types import Environment, Node


class Operands:
    """The inputs and the output of an action."""

    def __init__(self, node: Node, sources: list[Node], env: Environment) -> None:
        self.node = node
        self.sources = sources
        self.output = str(node)
        self.inputs = [str(source) for source in sources]
        self.env = env

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of its commands."""
        return compat.variables_of(self.env, [self.node], self.sources)

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


def _bundle(
    given: Operands, entries: Any, file_type: str, alignment: int, compression: list[Any]
) -> None:
    from offload_tool.operations.bundle import bundle_files

    items = [
        (BundleEntryID.read(entry), None if index is None else given.inputs[index])
        for entry, index in entries
    ]
    for entry, path in items:
        if file_type == "o" and entry.kind == "host" and path is not None:
            check_holds_code(path)
    bundle_files(
        items,
        given.output,
        file_type=file_type,
        alignment=alignment,
        compression=_compression(*compression),
        warn=given.warn,
    )


def _compression(method: Any, *settings: Any) -> Any:
    from offload_tool.operations.bundle import Compression

    return Compression(method, *settings) if method else None


def _device_archive(given: Operands, entry: str, **options: bool) -> None:
    from offload_tool.containers.find import find_containers
    from offload_tool.operations.unarchive import (
        ArchiveOptions,
        MissingCodeObjectError,
        unbundle_archive,
    )

    outputs = {BundleEntryID.parse(entry): given.output}
    own = ArchiveOptions(offload_binaries=True, **options)
    try:
        unbundle_archive(given.inputs[0], outputs, options=own, keep_equal=True, warn=given.warn)
    except MissingCodeObjectError as error:
        found: set[str] = set()
        with suppress(NoContainerError):
            for container in find_containers(given.inputs[0], confined=False):
                found |= {image.id for image in container.images if image.kind != "host"}
        raise UsageError(
            f"{error}, but for {', '.join(sorted(found)) or 'none'}; build it for this target, too"
        ) from None


def _cuda_archive(given: Operands, processor: str, allow_missing: bool) -> None:
    from offload_tool.operations.unarchive_cuda import unbundle_cuda_library

    unbundle_cuda_library(given.inputs[0], given.output, processor, allow_missing=allow_missing)


def _embed(given: Operands, host_triple: str, cuid: str | None, **options: Any) -> None:
    from offload_tool.operations.embed import EmbedOptions, embed_bundle

    # Without host objects, the linker decides whether one refers to the bundle.
    embed_bundle(
        given.inputs[0],
        given.output,
        host_triple=host_triple,
        cuid=cuid,
        host_files=given.inputs[1:],
        options=EmbedOptions(as_archive=cuid is not None, **options),
    )


def _embed_for_tools(given: Operands, host_triple: str) -> None:
    from offload_tool.operations.embed import embed_tools_marker

    embed_tools_marker(given.inputs[0], given.output, host_triple=host_triple)


def _embed_cuda(given: Operands, relocatable: bool = False) -> None:
    from offload_tool.operations.embed import embed_cuda_fatbin

    host, fatbin = given.inputs
    if relocatable:
        check_no_entries(host)
    embed_cuda_fatbin(host, fatbin, given.output)


def _embed_linked_cuda(given: Operands, sources: int, library: str = "") -> None:
    from offload_tool.nvidia.linked_fatbin import embed_fat_binaries

    linked, *rest = given.inputs
    embed_fat_binaries(
        given.output,
        given.env["_OFFLOAD_CC"],
        given.variables,
        linked,
        rest[:sources],
        others=rest[sources:],
        runtimes=given.env["_OFFLOAD_LINK_LIBRARIES"],
        library=library,
    )


def _register_cuda(given: Operands, sources: int, library: str = "") -> None:
    from offload_tool.nvidia.linked_fatbin import compile_registration, starts_kernels

    env, files = given.env, given.inputs[1:]
    # Not always: two libraries with device links of their own may not register the same module.
    runtimes = env["_OFFLOAD_LINK_LIBRARIES"] if any(map(starts_kernels, files)) else []
    command = [*env["_OFFLOAD_CC"], *library_flags(library)]
    compile_registration(given.output, command, given.variables, files[sources:], runtimes)


def _merge_library(given: Operands, libraries: int, library: str) -> None:
    env, count = given.env, len(given.inputs) - libraries
    files, merged = given.inputs[:count], given.inputs[count:]
    merge_library(given.output, env["_OFFLOAD_LLD"], given.variables, files, merged, library)


def _link_cuda(given: Operands, arguments: list[str]) -> None:
    from offload_tool.nvidia.nvlink import link_cubins

    env = given.env
    command = [*env["_OFFLOAD_LINKER"], *arguments]
    link_cubins(
        given.output, command, given.inputs, given.variables, env["_OFFLOAD_LINK_LIBRARIES"]
    )
    check_cubin(given.output)


def _embed_package(given: Operands) -> None:
    from offload_tool.operations.embed import embed_offload_binary

    host, package = given.inputs
    check_holds_code(host)
    embed_offload_binary(host, package, given.output)


def _extract(
    given: Operands, kind: str, triple: str, arch: str | None, archive: bool = False
) -> None:
    from offload_tool.operations.unpackage import (
        ExtractOptions,
        ImageFilter,
        SeveralImagesError,
        extract_images,
    )

    strings = {} if arch is None else {"arch": arch}  # clang names a CPU's, such as "generic"
    wanted = ImageFilter(strings, kind, given.output, triple=triple)
    options = ExtractOptions(archive=archive, one_each=True)
    try:
        written = extract_images(given.inputs[0], [wanted], options=options, warn=given.warn)
    except SeveralImagesError as error:
        way_out = "OFFLOAD_EXTRACT_ARCHIVE=True makes an archive of them"
        raise UsageError(f"{error}; {way_out}") from None
    if not written:
        raise UsageError(
            f"'{given.inputs[0]}': no image of {kind} with arch {'any' if arch is None else arch}, "
            f"triple {triple}; 'offload-tool list' shows what there is"
        )


def _fatbin(given: Operands, processors: list[str], **options: Any) -> None:
    from offload_tool.operations.embed import write_cuda_fatbin

    images = list(zip(processors, given.inputs, strict=True))
    write_cuda_fatbin(images, given.output, **options)


def _kpack(given: Operands) -> None:
    from offload_tool.operations.embed import interface_of, pack_code_objects

    codes = info_of(given.node).archive_codes.values()
    first = next(iter(codes))
    packing, target_id = first.packing, code_of(first.node).device.name
    files = []
    for code in codes:
        path = str(code.node)
        suffix = f"@{interface_of([path])}" if packing.interface else ""
        files.append((kernel_key(code.kernel_name + suffix), path))
    group, scheme = packing.group, packing.scheme
    pack_code_objects(files, given.output, group=group, target_id=target_id, scheme=scheme)


def _mark(given: Operands) -> None:
    from offload_tool.operations.embed import mark_host_file

    mark_host_file(given.inputs[0], given.output)


def _marker(given: Operands, kernel_name: str, paths: list[str], interface: bool) -> None:
    from offload_tool.operations.embed import interface_of, write_marker

    suffix = f"@{interface_of(given.inputs)}" if interface else ""
    write_marker(KpackMarker(kernel_name + suffix, tuple(paths)), given.output)


def _package(given: Operands, images: Any, base: bool = False) -> None:
    from offload_tool.formats.offload_binary import ImageKind
    from offload_tool.operations.package import PackagedImage, package_images

    packaged = []
    for file, values in zip(given.inputs, images, strict=not base):
        strings = {key: values[key] for key in ("triple", "arch") if values[key]}
        strings.update(values.get("keys", {}))
        image_kind = ImageKind[values["image_kind"]] if "image_kind" in values else None
        packaged.append(PackagedImage(file, strings, values["kind"], image_kind))
    package_images(packaged, given.output, base=given.inputs[-1] if base else None)


def _repack(given: Operands, alignment: int, compression: list[Any]) -> None:
    from offload_tool.operations.bundle import repack_bundle

    made = _compression(*compression)
    repack_bundle(given.inputs[0], given.output, compression=made, alignment=alignment)


def _unbundle(given: Operands, entry: str, **options: Any) -> None:
    from offload_tool.operations.unbundle import unbundle_file

    outputs = {BundleEntryID.parse(entry): given.output}
    unbundle_file(given.inputs[0], outputs, one_each=True, **options)


def _wrap(given: Operands, kind: Any, triple: str, **options: Any) -> None:
    from offload_tool.operations.wrap import WrapOptions, wrap_images

    env = given.env
    command = [*env["_OFFLOAD_CLANG"], *env["_OFFLOAD_LOCAL_FLAGS"]]
    wrap_images(
        given.inputs,
        given.output,
        kind=kind,
        triple=triple,
        # Target IDs were read where the builder was called.
        options=WrapOptions(**options, allow_unknown=True),
        compiler=HostCompiler(command, given.variables),
        warn=given.warn,
    )


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


class Operation(NodeBuilder):
    """A builder whose keyword arguments are the operation's signed options, of JSON's types."""

    def __init__(self, verb: str, do: Callable[..., None], message: str) -> None:
        def run(given: Operands) -> None:
            do(given, **json.loads(given.env["_OFFLOAD_SPEC"]))

        super().__init__(_operation_action(verb, run, message))

    def __call__(
        self,
        env: Environment,
        node: Node,
        sources: list[Node],
        /,
        variables: Mapping[str, Any] = MappingProxyType({}),
        **options: Any,
    ) -> Node:
        """Declare the node; see `NodeBuilder`."""
        spec = json.dumps(options, sort_keys=True)
        return super().__call__(env, node, sources, **variables, _OFFLOAD_SPEC=spec)


def _operation_action(
    verb: str, run: Callable[[Operands], None], message: str
) -> compat.SignedAction:
    keywords = {"cmdstr": f"$OFFLOAD{message}COMSTR", "varlist": ("_OFFLOAD_SPEC",)}
    return action(f"{verb} {FORMAT_VERSION}", run, **keywords)


def _command(name: str, check: Any = None, **made: Any) -> NodeBuilder:
    command = SCons.Action.Action(f"$OFFLOAD{name}COM", f"$OFFLOAD{name}COMSTR")
    return NodeBuilder(SCons.Action.Action([command, *([check] if check else [])]), **made)


def _pass_command(name: str) -> compat.PassCommandAction:
    message = f"$OFFLOAD{name}COMSTR"
    return compat.PassCommandAction(f"OFFLOAD{name}COM", signed_text, cmdstr=message)


def _pass(name: str, **made: Any) -> NodeBuilder:
    actions = [
        check("begin compile", lambda given: records_of(given.node).begin_compile()),
        _pass_command(name),
        check("finish compile", _finish_compile),
    ]
    return NodeBuilder(SCons.Action.Action(actions), PassOutput, **made)


DEVICE = _pass("DEVICE", target_scanner=DEPENDENCY_SCANNER)
HOST = _pass("HOST", target_scanner=DEPENDENCY_SCANNER)
HOST_FROM_IR = _pass("HOSTIR")
_OF_LINKS = {"target_scanner": flags_scanner("OFFLOAD_LINK_FLAGS")}


def _check_image(given: Operands) -> None:
    code = code_of(given.node)
    check_image(given.output, code.kind, code.device)


_CHECK_IMAGE = check("check image", _check_image)
LINK = _command("LINK", _CHECK_IMAGE, **_OF_LINKS)
OPENMP_LINK = NodeBuilder(SCons.Action.Action([_pass_command("LINK"), _CHECK_IMAGE]), **_OF_LINKS)
MERGE = _command("MERGE")
PTXAS = _command(
    "PTXAS",
    check(
        "check cubin", lambda given: check_cubin(given.output, rdc=code_of(given.node).relocatable)
    ),
    target_scanner=flags_scanner("OFFLOAD_PTXAS_FLAGS"),
)
REGISTER = _command("REGISTER")
MERGE_LIBRARY = Operation("merge library", _merge_library, "MERGE")
ARCHIVE = Operation("archive", _archive, "ARCHIVE")
BUNDLE = Operation("bundle", _bundle, "BUNDLE")
CUDA_ARCHIVE = Operation("cuda archive", _cuda_archive, "DEVICEARCHIVE")
DEVICE_ARCHIVE = Operation("device archive", _device_archive, "DEVICEARCHIVE")
EMBED = Operation("embed", _embed, "EMBED")
EMBED_FOR_TOOLS = Operation("embed for tools", _embed_for_tools, "EMBED")
EMBED_CUDA = Operation("embed cuda", _embed_cuda, "EMBED")
EMBED_PACKAGE = Operation("embed package", _embed_package, "EMBED")
EMBED_LINKED_CUDA = Operation("embed linked cuda", _embed_linked_cuda, "EMBED")
REGISTER_CUDA = Operation("register cuda", _register_cuda, "REGISTER")
KPACK = NodeBuilder(_operation_action("kpack", _kpack, "KPACK"))
MARK = Operation("mark", _mark, "MARK")
MARKER = Operation("marker", _marker, "MARKER")
LINK_CUDA = Operation("link cuda", _link_cuda, "CUDALINK")
EXTRACT = Operation("extract", _extract, "EXTRACT")
FATBIN = Operation("fatbin", _fatbin, "FATBIN")
PACKAGE = Operation("package", _package, "PACKAGE")
REPACK = Operation("repack", _repack, "REPACK")
UNBUNDLE = Operation("unbundle", _unbundle, "UNBUNDLE")
WRAP = Operation("wrap", _wrap, "WRAP")
