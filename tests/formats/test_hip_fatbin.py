"""The object that embeds a bundle, and the symbols by which host code finds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from offload_tool.errors import UsageError
from offload_tool.formats.hip_fatbin import cuid_hash, fatbin_symbol, plan_embedding
from offload_tool.formats.objects.elf.reader import ET_REL, read_elf_tables
from tests.conftest import Tool, run_tool, try_tool

LINUX = "x86_64-unknown-linux-gnu"


def embed(content: bytes, cuid: str = "13", triple: str = LINUX) -> bytes:
    plan = plan_embedding([cuid_hash(cuid)], content, triple)
    return b"".join(plan.chunks())


@pytest.mark.parametrize("size", [0, 1, 7, 4096, 10001])
def test_content_is_in_the_section(size: int) -> None:
    content = bytes(index % 251 for index in range(size))
    data = memoryview(embed(content))
    tables = read_elf_tables(data)
    number = tables.names.index(b".hip_fatbin")
    assert tables.sections[number].sh_offset % 4096 == 0
    assert tables.content(number) == content


def test_other_hosts() -> None:
    """The object is one of the host's architecture; an unknown one is refused by name."""
    arm = read_elf_tables(memoryview(embed(b"x", triple="aarch64-unknown-linux-gnu"))).header
    assert (arm.e_machine, arm.e_type) == (183, ET_REL)
    with pytest.raises(UsageError, match=r"sparc-sun-solaris.*expected one of aarch64, "):
        plan_embedding(["1"], b"x", "sparc-sun-solaris")
    for triple in ("x86_64-pc-windows-msvc", "x86_64-w64-mingw32", "aarch64-apple-darwin"):
        with pytest.raises(UsageError, match=f"'{triple}': embed makes ELF objects"):
            plan_embedding(["1"], b"x", triple)
    assert plan_embedding(["1"], b"x", "x86_64-unknown-fuchsia")


@pytest.mark.llvm
def test_linkers_accept_it(tmp_path: Path, llvm: Tool) -> None:
    source = tmp_path / "k.hip"
    source.write_text("__attribute__((device)) int variable;\n")
    host, fat, linked = (tmp_path / name for name in ("host.o", "fat.o", "all.o"))
    flags = ["-x", "hip", "-nogpuinc", "-nogpulib", "--offload-host-only", "-cuid=abc"]
    run_tool(llvm("clang"), *flags, "-c", source, "-o", host)
    fat.write_bytes(embed(b"bundle", cuid="abc"))
    run_tool(llvm("ld.lld"), "-r", host, fat, "-o", linked)

    symbols = read_elf_tables(memoryview(linked.read_bytes())).named_symbols()
    assert fatbin_symbol("abc") in {symbol.name for symbol in symbols if symbol.defined}
    headers = try_tool(llvm("llvm-readelf"), "-SsW", fat)
    assert (headers.returncode, "warning" in headers.stderr) == (0, False)
    assert re.search(rf"GLOBAL HIDDEN +1 {fatbin_symbol('abc')}", headers.stdout)
