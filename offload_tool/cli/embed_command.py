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
    from offload_tool.files import keeping_equal
    from offload_tool.operations import embedding

    output, images, hosts = options.output, options.bundle, options.host_object
    sort = _sort(images)
    if sort != "HIP" and len(hosts) != 1:
        what = "a CUDA fat binary" if sort == "CUDA" else "an offload binary"
        raise UsageError(f"'{images}' is {what}: give the one --host-object that it goes into")
    with keeping_equal():
        if sort == "HIP":
            triple = options.host_triple or _host_triple()
            if hosts and embedding.read_host_files(hosts).has_entries:
                _embed_with_registration(output, images, triple, hosts)
                return 0
            embedding.embed_bundle(
                output, images, host_triple=triple, cuid=options.cuid, host_files=hosts
            )
        elif sort == "CUDA":
            embedding.embed_cuda_fatbin(output, hosts[0], images)
        else:
            embedding.embed_offload_binary(output, hosts[0], images)
    return 0


def _embed_with_registration(output: str, bundle: str, triple: str, hosts: list[str]) -> None:
    """Write the object for host code of the new offload driver, which does not register itself.

    :raises CompilerError: no compiler, which makes that part.
    """
    import os
    import tempfile

    from offload_tool.compiler.registration import write_registration
    from offload_tool.compiler.remembered import remembered_toolchain
    from offload_tool.files import InputFile, replace_file
    from offload_tool.operations.embedding import embed_bundle

    toolchain = remembered_toolchain(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        embedded, joined = f"{folder}/bundle.o", f"{folder}/joined.o"
        embed_bundle(embedded, bundle, host_triple=triple, host_files=hosts, registers_entries=True)
        write_registration(joined, toolchain, [embedded])
        with InputFile(joined) as source, replace_file(output) as out:
            out.copy(source)


def _sort(images: str) -> str:
    """Tell what a file is: ``HIP`` for its bundles, ``CUDA`` for a fat binary, ``package``."""
    from offload_tool.errors import UsageError
    from offload_tool.files import InputFile
    from offload_tool.formats.bundles.binary import is_bundle

    with InputFile(images) as source:
        data = source.data
        if is_bundle(data):
            return "HIP"
        # Not before: this command runs once per source, and these take longer than it does.
        from offload_tool.formats.bundles.compressed import is_compressed_bundle
        from offload_tool.formats.cuda_fatbin import is_cuda_fatbin
        from offload_tool.formats.offload_binary import is_offload_binary

        if is_compressed_bundle(data):
            return "HIP"
        if is_cuda_fatbin(data):
            return "CUDA"
        if is_offload_binary(data):
            return "package"
        found = bytes(data[:4])
    raise UsageError(
        f"'{images}': expected a bundle, a CUDA fat binary or an offload binary, found {found!r}"
    )


def _host_triple() -> str:
    import os

    return f"{os.uname().machine}-unknown-linux-gnu"
