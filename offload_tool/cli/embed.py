"""``offload-tool embed IMAGES... -o OUT.o (--cuid X | --host-object HOST.o...)``."""

from __future__ import annotations

import argparse
import os

from offload_tool.cli.arguments import Commands, add_each, add_output
from offload_tool.containers.file_format import FileFormat, recognise
from offload_tool.errors import UsageError
from offload_tool.formats.objects.device_elf import is_code_object, read_code_object
from offload_tool.io import InputFile, StrPath, replace_file
from offload_tool.io.temporary_directory import temporary_folder

_FORMATS = (
    FileFormat.BUNDLE,
    FileFormat.CUDA_FATBIN,
    FileFormat.OFFLOAD_BINARY,
    FileFormat.CODE_OBJECT,  # of a cubin
)


def add_embed(commands: Commands) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "embed",
        help="write the object that gives a host object its device images",
        description="Write an object with device images for a host object. For HIP, OUT contains "
        "the bundle under the symbol that the host object refers to. Host objects of the new "
        "offload driver do not register their images; then OUT does, and the command needs a "
        "compiler, which it finds as `compile` does. For a CUDA fat binary or an offload binary, "
        "OUT is a copy of the host object with the images in it. For relocatable CUDA code, give "
        "the linked cubins of all targets and all host objects (and the fat binary of each "
        "source's PTX, for later GPUs), and link OUT together with the host objects. OUT is not "
        "written if its bytes would not change.",
    )
    parser.add_argument(
        "images",
        nargs="+",
        metavar="IMAGES",
        help="a HIP bundle, a CUDA fat binary or an offload binary; or linked cubins of CUDA",
    )
    add_output(parser, "OUT.o", "the output")
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument(
        "--cuid", metavar="X", help="the ID with which the HIP host object was compiled"
    )
    text = "a host object or archive; several for relocatable device code"
    add_each(wanted, "--host-object", "HOST.o", text)
    text = "the target ID of each linked cubin, in order, since a cubin does not contain all of it"
    add_each(parser, "--target-id", "ID", text)
    parser.add_argument(
        "--host-triple",
        metavar="TRIPLE",
        help="the triple of HIP host code (default: that of this machine)",
    )


def run_embed(options: argparse.Namespace) -> int:
    """Write the object; raise UsageError for other images, or too many host objects."""
    from offload_tool.operations import embed

    (images, *others), output, hosts = options.images, options.output, options.host_object
    found = _format(images)
    if found is FileFormat.CODE_OBJECT:
        _embed_linked_cuda(options.images, options.target_id, hosts, output)
        return 0
    if options.target_id:
        raise UsageError(f"--target-id is for linked cubins, and '{images}' is none; leave it out")
    if others:
        raise UsageError(
            f"'{images}': expected one file with images, found '{others[0]}' beside it; several "
            "are for the linked cubins of relocatable CUDA code"
        )
    if found is not FileFormat.BUNDLE and len(hosts) != 1:
        what = "a CUDA fat binary" if found is FileFormat.CUDA_FATBIN else "an offload binary"
        raise UsageError(f"'{images}' is {what}; give the one --host-object that it goes into")
    if found is FileFormat.CUDA_FATBIN:
        embed.embed_cuda_fatbin(hosts[0], images, output, keep_equal=True)
    elif found is FileFormat.OFFLOAD_BINARY:
        embed.embed_offload_binary(hosts[0], images, output, keep_equal=True)
    else:
        triple = options.host_triple
        if triple is None:
            triple = f"{os.uname().machine}-unknown-linux-gnu"
        if hosts and embed.read_host_files(hosts).has_entries:
            _embed_with_registration(images, hosts, output, triple)
        else:
            embed.embed_bundle(
                images,
                output,
                host_triple=triple,
                cuid=options.cuid,
                host_files=hosts,
                keep_equal=True,
            )
    return 0


def _embed_with_registration(bundle: str, hosts: list[str], output: str, triple: str) -> None:
    """Write the object for the new offload driver's host code, with the registration it lacks."""
    from offload_tool.operations.embed import EmbedOptions, embed_bundle
    from offload_tool.passes.registration import write_registration
    from offload_tool.run.pass_command import cached_toolchain

    toolchain = cached_toolchain(os.environ)
    with temporary_folder() as folder:
        embedded, joined = f"{folder}/bundle.o", f"{folder}/joined.o"
        registered = EmbedOptions(registers_entries=True)
        embed_bundle(bundle, embedded, host_triple=triple, host_files=hosts, options=registered)
        write_registration(toolchain, [embedded], joined)
        _copy_unless_equal(joined, output)


def _embed_linked_cuda(
    images: list[str], processors: list[str], hosts: list[str], output: str
) -> None:
    """Write the object of a program's linked CUDA code; raise UsageError or CompilerError."""
    from offload_tool.nvidia.linked_fatbin import write_linked_cuda
    from offload_tool.operations.embed import write_cuda_fatbin
    from offload_tool.run.pass_command import cached_toolchain

    if not hosts:
        raise UsageError("linked cubins are registered by name; give every --host-object")
    cubins = [name for name in images if _format(name) is FileFormat.CODE_OBJECT]
    sources = [name for name in images if _format(name) is FileFormat.CUDA_FATBIN]
    if len(cubins) + len(sources) < len(images):
        raise UsageError(
            f"'{images[0]}' is a cubin: expected cubins and CUDA fat binaries alone; "
            "embed other images with a call of their own"
        )
    if len(processors) != len(cubins):
        what = f"found {len(processors)} for {len(cubins)} cubins"
        raise UsageError(f"expected one --target-id for each linked cubin, {what}")
    for name in cubins:
        _check_linked(name)
    with temporary_folder() as folder:
        linked, joined = folder / "linked.fatbin", folder / "joined.o"
        write_cuda_fatbin(list(zip(processors, cubins, strict=True)), linked)
        write_linked_cuda(cached_toolchain(os.environ), linked, sources, hosts, joined)
        _copy_unless_equal(joined, output)


def _copy_unless_equal(made: StrPath, output: str) -> None:
    with InputFile(made) as source, replace_file(output, keep_equal=True) as out:
        out.copy(source)


def _check_linked(cubin: str) -> None:
    """Reject relocatable code; raise UsageError if the cubin is relocatable."""
    with InputFile(cubin) as source:
        found = read_code_object(source.data, path=cubin)
    if found.kind != "cuda" or found.image_kind != "object":
        what = f"{found.image_kind} code of {found.kind} for {found.target_id}"
        raise UsageError(f"'{cubin}': expected a linked cubin, found {what}; see compile --link")


def _format(images: str) -> FileFormat:
    """Return the format of a file with images; raise UsageError if not of `_FORMATS`."""
    with InputFile(images) as source:
        is_code = is_code_object(source.data)
        found = FileFormat.CODE_OBJECT if is_code else recognise(source.data)
        begin = bytes(source.data[:4])
    if found is None or found not in _FORMATS:
        raise UsageError(
            f"'{images}': expected a bundle, a CUDA fat binary, an offload binary or a linked "
            f"cubin, found {begin!r}"
        )
    return found
