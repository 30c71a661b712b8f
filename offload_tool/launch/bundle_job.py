"""The fat binary of a compile, made in this process as the driver's bundler would make it.

What is not the plain case is left to the driver's own program: a compressed bundle's bytes depend
on its version of zstd, a package's on LLVM's version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_VARIABLES = ("OFFLOAD_BUNDLER", "COMPRESSED_BUNDLE_")
"""Beginnings of the names of variables with which the bundler compresses, or says more."""
_NOTHING = "/dev/null"


class FatBinary:
    """What the bundler is asked for."""

    __slots__ = ("alignment", "entries", "inputs", "output")

    def __init__(
        self, entries: Sequence[str], inputs: Sequence[str], output: str, alignment: int
    ) -> None:
        self.entries = entries
        """Bundle entry IDs, that of the host, which is empty, first."""
        self.inputs = inputs
        self.output = output
        self.alignment = alignment

    def write(self) -> None:
        """Write the bundle.

        :raises OffloadError: it cannot be written.
        """
        from offload_tool.formats.target.bundle_entry_id import BundleEntryID
        from offload_tool.operations.bundle import write_bundle

        items = [
            (BundleEntryID.parse(entry), None if name == _NOTHING else name)
            for entry, name in zip(self.entries, self.inputs, strict=True)
        ]
        # The driver has checked which targets go together.
        write_bundle(items, self.output, file_type="o", alignment=self.alignment)


def fat_binary_of(words: Sequence[str], environ: Mapping[str, str]) -> FatBinary | None:
    """Read a command of the bundler's; None where its own program has to do it."""
    if any(name.startswith(_VARIABLES) for name in environ):
        return None
    alignment = 0
    entries: list[str] = []
    inputs: list[str] = []
    output = ""
    for word in words[1:]:
        option, equals, value = word.partition("=")
        if not equals:
            return None
        if option == "-targets":
            entries = value.split(",")
        elif option == "-input":
            inputs.append(value)
        elif option == "-output":
            output = value
        elif option == "-bundle-align" and value.isdigit():
            alignment = int(value)
        elif word != "-type=o":
            return None
    is_plain = (
        alignment > 0
        and len(entries) == len(inputs)
        and inputs[:1] == [_NOTHING]
        and inputs.count(_NOTHING) == 1
        and entries[0].startswith("host-")
    )
    return FatBinary(entries, inputs, output, alignment) if is_plain else None
