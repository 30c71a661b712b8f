"""What code objects say in their ELF headers; target/test_compatibility.py asks LLVM."""

from __future__ import annotations

import pytest

from offload_tool.formats.objects.device_elf import generic_version


@pytest.mark.parametrize("code", [b"", b"\x7fELF\x02\x01" + bytes(20), b"BC\xc0\xde" + bytes(60)])
def test_no_elf_header(code: bytes) -> None:
    """What has no 64-bit ELF header has no generic version to be read."""
    assert generic_version(code) is None
