"""The actions of the tool's nodes, and the builder of nodes with each action.

SCons puts the bytecode of an action function into the signatures of all its targets.
The functions in the first part are therefore one line each and stay as they are; what
matters to the result is in the spec (``_OFFLOAD_SPEC``), and the work is done below.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import SCons.Action
import SCons.Errors

from offload_tool.errors import CodeObjectError, OffloadError, UsageError
from offload_tool.formats.target.bundle_entry_id import BundleEntryID
from offload_tool.passes.verify_output import (
    blame_launcher,
    check_code_object,
    check_cubin,
    check_holds_code,
    check_no_entries,
    check_ptx,
)
from offload_tool.scons.graph.declare import NodeBuilder
from offload_tool.scons.state.compiler_queries import depfile_of
from offload_tool.scons.state.node_classes import PassOutput, records_of
from offload_tool.scons.state.scanner import DEPENDENCY_SCANNER, NO_SCANNER

if TYPE_CHECKING:
    from offload_tool.scons.types import Environment, Node


def offload_begin(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_begin_compile, target, source, env)


def offload_check(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_finish_compile, target, source, env)


def offload_check_link(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_finish_link, target, source, env)


def offload_check_cubin(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_finish_cubin, target, source, env)


def offload_check_unseen(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_check_unseen, target, source, env)


def offload_archive(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_archive, target, source, env)


def offload_bundle(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_bundle, target, source, env)


def offload_cuda_archive(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_cuda_archive, target, source, env)


def offload_device_archive(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_device_archive, target, source, env)


def offload_embed(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_embed, target, source, env)


def offload_embed_cuda(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_embed_cuda, target, source, env)


def offload_embed_package(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_embed_package, target, source, env)


def offload_embed_linked_cuda(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_embed_linked_cuda, target, source, env)


def offload_register_cuda(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_register_cuda, target, source, env)


def offload_link_cuda(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_link_cuda, target, source, env)


def offload_link_ptx(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_link_ptx, target, source, env)


def offload_extract(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_extract, target, source, env)


def offload_fatbin(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_fatbin, target, source, env)


def offload_kpack(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_kpack, target, source, env)


def offload_mark(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_mark, target, source, env)


def offload_marker(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_marker, target, source, env)


def offload_package(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_package, target, source, env)


def offload_repack(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_repack, target, source, env)


def offload_unbundle(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_unbundle, target, source, env)


def offload_wrap(target: list[Node], source: list[Node], env: Environment) -> int:
    return _run(_wrap, target, source, env)


def _command(name: str, check: Any = None, begin: Any = None, **made: Any) -> NodeBuilder:
    """Return the builder of a command line's node; `check` its output, `begin` before it."""
    command = SCons.Action.Action(f"$OFFLOAD{name}COM", f"$OFFLOAD{name}COMSTR")
    before, after = (
        [SCons.Action.Action(function, cmdstr=None)] if function else []
        for function in (begin, check)
    )
    return NodeBuilder(SCons.Action.Action([*before, command, *after]), **made)


def _function(function: Any, name: str) -> NodeBuilder:
    action = SCons.Action.Action(function, f"$OFFLOAD{name}COMSTR", varlist=["_OFFLOAD_SPEC"])
    return NodeBuilder(action)


_PASS = {
    "node_class": PassOutput,
    "source_scanner": NO_SCANNER,
    "target_scanner": DEPENDENCY_SCANNER,
}
DEVICE = _command("DEVICE", offload_check, offload_begin, **_PASS)
HOST = _command("HOST", offload_check, offload_begin, **_PASS)
HOST_FROM_IR = _command(
    *("HOSTIR", offload_check, offload_begin), node_class=PassOutput, source_scanner=NO_SCANNER
)
LINK = _command("LINK", offload_check_link)
MERGE = _command("MERGE")
PTXAS = _command("PTXAS", offload_check_cubin)
REGISTER = _command("REGISTER")
CHECK_UNSEEN = SCons.Action.Action(offload_check_unseen, cmdstr=None)
ARCHIVE = _function(offload_archive, "ARCHIVE")
BUNDLE = _function(offload_bundle, "BUNDLE")
CUDA_ARCHIVE = _function(offload_cuda_archive, "DEVICEARCHIVE")
DEVICE_ARCHIVE = _function(offload_device_archive, "DEVICEARCHIVE")
EMBED = _function(offload_embed, "EMBED")
EMBED_CUDA = _function(offload_embed_cuda, "EMBED")
EMBED_PACKAGE = _function(offload_embed_package, "EMBED")
EMBED_LINKED_CUDA = _function(offload_embed_linked_cuda, "EMBED")
REGISTER_CUDA = _function(offload_register_cuda, "REGISTER")
KPACK = _function(offload_kpack, "KPACK")
MARK = _function(offload_mark, "MARK")
MARKER = _function(offload_marker, "MARKER")
LINK_PTX = _function(offload_link_ptx, "CUDALINK")
LINK_CUDA = _function(offload_link_cuda, "CUDALINK")
EXTRACT = _function(offload_extract, "EXTRACT")
FATBIN = _function(offload_fatbin, "FATBIN")
PACKAGE = _function(offload_package, "PACKAGE")
REPACK = _function(offload_repack, "REPACK")
UNBUNDLE = _function(offload_unbundle, "UNBUNDLE")
WRAP = _function(offload_wrap, "WRAP")


def _run(
    work: Callable[[Any, Any, Any], None], target: list[Node], source: list[Node], env: Environment
) -> int:
    """Do the work; turn an error into SCons's, and leave no output that is not right."""
    try:
        work(target, source, env)
    except OffloadError as error:
        Path(target[0].get_abspath()).unlink(missing_ok=True)
        raise SCons.Errors.BuildError(node=target[0], errstr=str(error)) from error
    return 0


def _warner(target: list[Node]) -> Callable[[str], None]:
    """Return what an operation tells its warnings: the command writes them in the same words."""

    def warn(text: str) -> None:
        sys.stderr.write(f"offload: warning: [{target[0]}] {text}\n")

    return warn


def _spec(env: Environment) -> Any:
    return json.loads(env["_OFFLOAD_SPEC"])


def _compression(spec: Any) -> Any:
    from offload_tool.operations.bundle import Compression

    method, *settings = spec["compression"]
    return Compression(method, *settings) if method else None


# The operations are imported where they are used: a build of one language needs few of them.


def _begin_compile(target: list[Node], source: list[Node], env: Environment) -> None:
    records_of(target[0]).begin()


def _finish_compile(target: list[Node], source: list[Node], env: Environment) -> None:
    records = records_of(target[0])
    try:
        host_ir = str(source[1]) if len(source) > 1 else None
        _check(records.job, str(target[0]), host_ir, env)
        records.finish()
    finally:
        Path(depfile_of(target[0])).unlink(missing_ok=True)


def _check(job: Any, output: str, host_ir: str | None, env: Environment) -> None:
    try:
        job.check(output, host_ir)
    except CodeObjectError as error:
        if env["OFFLOAD_LAUNCHER"] or env["OFFLOAD_DIST"]:
            raise blame_launcher(error) from None
        raise


def _finish_link(target: list[Node], source: list[Node], env: Environment) -> None:
    device = target[0].attributes.offload_device
    if device.target_id is not None:
        check_code_object(str(target[0]), device.target_id, None)


def _finish_cubin(target: list[Node], source: list[Node], env: Environment) -> None:
    check_cubin(str(target[0]), rdc=getattr(target[0].attributes, "offload_relocatable", False))


def _check_unseen(target: list[Node], source: list[Node], env: Environment) -> None:
    """Refuse files whose device code the link would leave out, which were not there to be read."""
    from offload_tool.containers.find import has_relocatable_code

    for node in target[0].attributes.offload_unseen:
        if has_relocatable_code(str(node)):
            raise UsageError(
                f"'{node}' has relocatable device code, which '{target[0]}' is linked without: no "
                "kernel of it would be found; give it in OFFLOAD_LIBS"
            )


def _archive(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.archive import create_archive

    create_archive([(node.name, str(node)) for node in source], str(target[0]))


def _bundle(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.bundle import bundle_files

    spec = _spec(env)
    items = [
        (BundleEntryID.read(entry), None if index is None else str(source[index]))
        for entry, index in spec["entries"]
    ]
    for entry, path in items:
        if spec["file_type"] == "o" and entry.kind == "host" and path is not None:
            check_holds_code(path)
    bundle_files(
        items,
        str(target[0]),
        file_type=spec["file_type"],
        alignment=spec["alignment"],
        compression=_compression(spec),
        warn=_warner(target),
    )


def _device_archive(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.unarchive import unbundle_archive

    spec = _spec(env)
    outputs = {BundleEntryID.parse(spec["entry"]): str(target[0])}
    options = spec.get("options", {})
    unbundle_archive(
        str(source[0]),
        outputs,
        keep_equal=True,
        offload_binaries=True,
        warn=_warner(target),
        **options,
    )


def _cuda_archive(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.unarchive_cuda import unbundle_cuda_library

    spec = _spec(env)
    missing = spec["allow_missing"]
    unbundle_cuda_library(str(source[0]), str(target[0]), spec["processor"], allow_missing=missing)


def _embed(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.embed import embed_bundle, embed_tools_marker

    spec = _spec(env)
    if spec.get("for_tools", False):
        triple = spec["host_triple"]
        embed_tools_marker(str(source[0]), str(target[0]), host_triple=triple)
        return
    # What knows nothing of host objects leaves it to the linker whether one asks for the bundle.
    embed_bundle(
        str(source[0]),
        str(target[0]),
        host_triple=spec["host_triple"],
        cuid=spec["cuid"],
        as_archive=spec["cuid"] is not None,
        host_files=[str(node) for node in source[1:]],
        registers_entries=spec["registers_entries"],
        is_marker=spec.get("marker", False),
    )


def _embed_cuda(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.embed import embed_cuda_fatbin

    if _spec(env).get("relocatable", False):
        check_no_entries(str(source[0]))
    embed_cuda_fatbin(str(source[0]), str(source[1]), str(target[0]))


def _embed_linked_cuda(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.nvidia.linked_fatbin import embed_fat_binaries

    linked, *sources = map(str, source)
    embed_fat_binaries(str(target[0]), env["_OFFLOAD_CC"], env["ENV"], linked, sources)


def _register_cuda(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.nvidia.linked_fatbin import compile_registration

    hosts = list(map(str, source[1:]))
    compile_registration(str(target[0]), env["_OFFLOAD_CC"], env["ENV"], hosts)


def _link_cuda(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.nvidia.nvlink import link_cubins

    linker, libraries = env["_OFFLOAD_LINKER"], env["_OFFLOAD_LINK_LIBRARIES"]
    command = [*linker, *_spec(env)["arguments"]]
    link_cubins(str(target[0]), command, list(map(str, source)), env["ENV"], libraries)
    check_cubin(str(target[0]))


def _link_ptx(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.nvidia.openmp_link import link_bitcode

    spec = _spec(env)
    command = [*env["_OFFLOAD_CLANG"], *env["_OFFLOAD_LOCAL_FLAGS"], *spec["arguments"]]
    runtimes = env["_OFFLOAD_RUNTIMES"]
    link_bitcode(str(target[0]), command, list(map(str, source)), runtimes, env["ENV"])
    check_ptx(str(target[0]), target[0].attributes.offload_device.target_id)


def _embed_package(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.embed import embed_offload_binary

    check_holds_code(str(source[0]))
    embed_offload_binary(str(source[0]), str(source[1]), str(target[0]))


def _extract(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.unpackage import (
        ImageFilter,
        SeveralImagesError,
        extract_images,
    )

    spec = _spec(env)
    strings = dict(spec["strings"])
    triple = strings.pop("triple")
    wanted = ImageFilter(strings, spec["kind"], str(target[0]), triple=triple)
    is_archive = spec.get("archive", False)
    try:
        written = extract_images(
            str(source[0]), [wanted], archive=is_archive, one_each=True, warn=_warner(target)
        )
    except SeveralImagesError as error:
        way_out = "OFFLOAD_EXTRACT_ARCHIVE=True makes an archive of them"
        raise UsageError(f"{error}; {way_out}") from None
    if not written:
        text = ", ".join(f"{key} {value}" for key, value in spec["strings"].items())
        raise UsageError(
            f"'{source[0]}': no image of {spec['kind']} with {text}; "
            "'offload-tool list' shows what there is"
        )


def _fatbin(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.embed import write_cuda_fatbin

    spec = _spec(env)
    write_cuda_fatbin(
        list(zip(spec["processors"], map(str, source), strict=True)),
        str(target[0]),
        options=spec.get("options", ""),
        may_be_empty=spec.get("linked", False),
    )


def _kpack(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.formats.kpack.archive import kernel_key
    from offload_tool.operations.kpack import CodeFile, interface_of, pack_code_objects

    codes = target[0].attributes.offload_kpack_codes.values()
    packing, target_id = next((code.packing, code.device.name) for code in codes)
    files = []
    for code in codes:
        path = str(code.node)
        suffix = f"@{interface_of([path])}" if packing.interface else ""
        files.append(CodeFile(kernel_key(code.kernel_name + suffix), target_id, path))
    pack_code_objects(
        files,
        str(target[0]),
        group=packing.group,
        target_ids=[target_id],
        scheme=packing.scheme,
    )


def _mark(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.kpack import mark_host_file

    mark_host_file(str(source[0]), str(target[0]))


def _marker(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.formats.kpack.marker import KpackMarker
    from offload_tool.operations.kpack import interface_of, write_marker

    spec = _spec(env)
    suffix = f"@{interface_of(list(map(str, source)))}" if spec["interface"] else ""
    marker = KpackMarker(spec["kernel_name"] + suffix, tuple(spec["paths"]))
    write_marker(marker, str(target[0]))


def _package(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.formats.offload_binary import ImageKind
    from offload_tool.operations.package import PackagedImage, package_images

    spec = _spec(env)
    images = []
    base = str(source[-1]) if spec.get("base", False) else None
    for node, values in zip(source, spec["images"], strict=base is None):
        strings = {key: values[key] for key in ("triple", "arch") if values[key]}
        strings.update(values.get("keys", {}))
        given = values.get("image_kind")
        image_kind = ImageKind[given] if given else None
        images.append(PackagedImage(str(node), strings, values["kind"], image_kind))
    package_images(images, str(target[0]), base=base)


def _repack(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.bundle import repack_bundle

    spec = _spec(env)
    repack_bundle(
        str(source[0]),
        str(target[0]),
        compression=_compression(spec),
        alignment=spec["alignment"],
    )


def _unbundle(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.unbundle import unbundle_file

    spec = _spec(env)
    outputs = {BundleEntryID.parse(spec["entry"]): str(target[0])}
    unbundle_file(str(source[0]), outputs, one_each=True, **spec.get("options", {}))


def _wrap(target: list[Node], source: list[Node], env: Environment) -> None:
    from offload_tool.operations.wrap import wrap_images
    from offload_tool.passes.registration import compile_text

    spec = _spec(env)
    images = [str(node) for node in source]
    command = [*env["_OFFLOAD_CLANG"], *env["_OFFLOAD_LOCAL_FLAGS"]]

    def compiled(text: str, triple: str) -> bytes:
        return compile_text([*command, f"--target={triple}"], env["ENV"], text)

    wrap_images(
        images,
        str(target[0]),
        kind=spec["kind"],
        triple=spec["triple"],
        target_ids=spec.get("target_ids"),
        allow_unknown=True,  # they were read where the builder was called
        generation=spec.get("generation", 22),
        compile_text=compiled,
        warn=_warner(target),
    )
