"""The kernels that PTX names."""

from __future__ import annotations

import contextlib
import time

import pytest

from offload_tool.errors import LimitError
from offload_tool.formats.cuda.ptx import ptx_statements, read_ptx_kernels

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
BODIES = {
    ".visible .entry k() { ret; }": {"k": None},
    ".entry _Z1kPi(\n\t.param .u64 p\n)\n{\n\tret;\n}": {"_Z1kPi": None},
    ".weak .entry $k_1 () .maxntid 128, 2, 2 { ret; }": {"$k_1": 512},
    ".entry k()\n.reqntid 64\n.minnctapersm 2 { ret; }": {"k": 64},
    ".entry k() // .maxntid 5\n.maxntid 7 { ret; }": {"k": 7},
    ".entry k() /* .maxntid 5 */ .maxntid 7 { ret; }": {"k": 7},
    ".extern .entry k(.param .u64 p);": {},
    ".entry k();\n.entry k() .maxntid 3 { ret; }": {"k": 3},
    ".entry a() { ret; }\n.entry b() { ret; }\n.entry a() { ret; }": {"a": None, "b": None},
    "// .entry k() { ret; }": {},
    "/* \n.entry k() { ret; }\n*/": {},
    '.file 1 "a.entry k() {"': {},
    ".func f() { ret; }": {},
    "// a /* b\n.entry k() { ret; }": {"k": None},
    '.file 1 "/*.cu"\n.entry k() { ret; }': {"k": None},
    "/* // */ .entry k() { ret; }": {"k": None},
    ".entry // the name\n k // follows\n () { ret; }": {"k": None},
    ".entry k() .maxntid 0x20, 010U { ret; }": {"k": 256},
    ".entry k() .maxntid 99999999999, 2 { ret; }": {"k": None},
    ".entry k() .maxntid 1024, 09 { ret; }": {"k": None},
    f".entry /*{' ' * 2000}*/ k() {{ ret; }}": {"k": None},
    ".entry k": {},
    "": {},
}


@pytest.mark.parametrize("body", BODIES)
def test_entries(body: str) -> None:
    """Kernels that are defined are named, with the largest workgroup, and nothing else is."""
    found = read_ptx_kernels(memoryview((HEAD + body).encode()))
    assert {kernel.name: kernel.max_workgroup_size for kernel in found} == BODIES[body]
    assert len(found) == len(BODIES[body])
    assert all(kernel.vgprs is None and kernel.wavefront_size == 32 for kernel in found)


ENDLESS = [b".entry a;", b"//.entry\n", b".entry a\n", b".entry //.entry\n", b".entry a ", b'"\\']
ENDLESS += [b"/*", b"/**/a", b'/*"*/"//"', b".entry a(/**/", b".entry a .maxntid 1 ", b".maxntid "]


@pytest.mark.parametrize("unit", ENDLESS)
def test_time_grows_with_the_size(unit: bytes) -> None:
    """Eight times the text takes about eight times as long; too many directives are refused."""
    text = memoryview(unit * (8_000_000 // len(unit)))
    seconds = []
    for size in (1_000_000, 8_000_000):
        started = time.process_time()
        with contextlib.suppress(LimitError):
            assert read_ptx_kernels(text[:size]) == []
        seconds.append(time.process_time() - started)
    assert seconds[1] < 24 * max(seconds[0], 0.05)


def test_too_many_directives() -> None:
    text = memoryview(b".entry a .maxntid 1 " * 50_000)
    with pytest.raises(LimitError, match="expected one member for each 100 bytes"):
        read_ptx_kernels(text)


def test_many_kernels() -> None:
    text = "".join(f".entry k{i}(.param .u64 p) .maxntid 64 {{ ret; }}\n" for i in range(20_000))
    assert len(read_ptx_kernels(memoryview(text.encode()))) == 20_000


def test_comments_after_a_directive() -> None:
    """A directive with comments and no name takes linear time: each comment has one end."""
    assert read_ptx_kernels(memoryview(b".entry " + b"/**/" * 100_000 + b"(;")) == []


@pytest.mark.parametrize("comment", ["/*" + "x" * 2000 + "*/", "/* open"])
def test_statements_without_comments(comment: str) -> None:
    assert ptx_statements(memoryview(f"ret; {comment}".encode())) == b"ret;"
