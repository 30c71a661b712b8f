"""``offload-tool embed BUNDLE -o OUT.o (--cuid X | --host-object HOST.o)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["add", "run"]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser of ``offload-tool``."""
    parser = commands.add_parser(
        "embed",
        help="put device images where a host object looks for them",
        description="Write the object that completes a HIP host object: it holds a bundle under "
        "the name that the host object asks for, and registers it for host objects of the new "
        "offload driver, which do not (a compiler is found as for `compile`). OUT is left "
        "untouched where its bytes are equal. "
        "A fat binary of CUDA or an offload binary goes into a copy of the host object instead.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "bundle", metavar="BUNDLE", help="a HIP bundle, a CUDA fat binary or an offload binary"
    )
    parser.add_argument("-o", dest="output", required=True, metavar="OUT.o", help="the output")
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument(
        "--cuid", metavar="X", help="the ID with which the HIP host object was compiled"
    )
    wanted.add_argument(
        "--host-object",
        action="append",
        default=[],
        metavar="HOST.o",
        help="a host object or archive; of relocatable device code, several",
    )
    parser.add_argument(
        "--host-triple", metavar="TRIPLE", help="of HIP host code (default: this machine's)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the object.

    :raises UsageError: images of another kind, or too many host objects for them.
    """
    from offload_tool.errors import UsageError
    from offload_tool.operations import embedding

    output, images, hosts = options.output, options.bundle, options.host_object
    sort = _sort(images)
    if sort != "HIP" and len(hosts) != 1:
        what = "a CUDA fat binary" if sort == "CUDA" else "an offload binary"
        raise UsageError(f"'{images}' is {what}: give the one --host-object that it goes into")
    if sort == "CUDA":
        embedding.embed_cuda_fatbin(hosts[0], images, output, keep_equal=True)
    elif sort != "HIP":
        embedding.embed_offload_binary(hosts[0], images, output, keep_equal=True)
    else:
        triple = options.host_triple or _host_triple()
        if hosts and embedding.read_host_files(hosts).has_entries:
            _embed_with_registration(images, hosts, output, triple)
        else:
            embedding.embed_bundle(
                images,
                output,
                host_triple=triple,
                cuid=options.cuid,
                host_files=hosts,
                keep_equal=True,
            )
    return 0


def _embed_with_registration(bundle: str, hosts: list[str], output: str, triple: str) -> None:
    """Write the object for host code of the new offload driver, which does not register itself.

    :raises CompilerError: no compiler, which makes that part.
    """
    import os

    from offload_tool.compiler.hip_registration import write_registration
    from offload_tool.compiler.pass_commands import cached_toolchain
    from offload_tool.files import InputFile, replace_file
    from offload_tool.files.folders import temporary_folder
    from offload_tool.operations.embedding import embed_bundle

    toolchain = cached_toolchain(os.environ)
    with temporary_folder() as folder:
        embedded, joined = f"{folder}/bundle.o", f"{folder}/joined.o"
        embed_bundle(bundle, embedded, host_triple=triple, host_files=hosts, registers_entries=True)
        write_registration(toolchain, [embedded], joined)
        with InputFile(joined) as source, replace_file(output, keep_equal=True) as out:
            out.copy(source)


def _sort(images: str) -> str:
    """Tell what a file is: ``HIP`` for its bundles, ``CUDA`` for a fat binary, ``package``."""
    from offload_tool.containers.file_format import FileFormat, recognise
    from offload_tool.errors import UsageError
    from offload_tool.files import InputFile

    sorts: dict[FileFormat | None, str] = {
        FileFormat.BUNDLE: "HIP",
        FileFormat.CUDA_FATBIN: "CUDA",
        FileFormat.OFFLOAD_BINARY: "package",
    }
    with InputFile(images) as source:
        sort = sorts.get(recognise(source.data))
        found = bytes(source.data[:4])
    if sort is None:
        raise UsageError(
            f"'{images}': expected a bundle, a CUDA fat binary or an offload binary, "
            f"found {found!r}"
        )
    return sort


def _host_triple() -> str:
    import os

    return f"{os.uname().machine}-unknown-linux-gnu"
