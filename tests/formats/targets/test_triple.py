"""Triples: normal form, the form in bundles, and which serve each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.formats.targets import triple as triples

FIELD = st.sampled_from(
    ["amdgcn", "x86_64", "arm", "amd", "pc", "suse", "linux", "amdhsa", "windows", "mingw32"]
    + ["gnu", "android", "elf", "macho", "none", "unknown", "", "foo", "nvptx64", "gnueabi"]
)
TRIPLE = st.tuples(FIELD, FIELD, FIELD, FIELD).map("-".join)


@given(TRIPLE)
def test_normal_form_is_stable(triple):
    normal = triples.normalized(triple)
    assert len(normal.split("-")) == 4
    assert all(normal.split("-"))
    assert triples.normalized(normal) == normal


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        # Versions, unknown names and alternative names make no difference.
        ("x86_64-unknown-linux-gnu", "amd64-redhat-linux5.4-gnufoo", None),
        ("amdgcn-amd-amdhsa-", "amdgcn-amd-amdhsa-unknown", None),
        ("amdgcn-amd-amdhsa-elf", "amdgcn-amd-amdhsa-foo", None),
        ("armv7-unknown-linux-gnu", "thumbv7a-unknown-linux-gnu", None),
        ("arm64-apple-macos-macabi", "aarch64-apple-macos-elf", None),
        ("x86_64-pc-windows-gnu", "x86_64-unknown-windows-gnu", None),
        ("arm64-unknown-visionos-", "arm64-unknown-xros1.0-macho", None),
        ("x86_64-pc-linux-gnu", "x86_64-unknown-linux-gnu", "vendor pc is not unknown"),
        ("amdgcn--amdhsa-", "amdgcn-amd-amdhsa-", "vendor unknown is not amd"),
        ("x86_64--linux-gnu", "x86_64--linux-", "environment gnu is not unknown"),
        ("amdgcn-amd-amdhsa-", "amdgcn-amd-amdpal-", "OS amdhsa is not amdpal"),
        ("spirv64---", "spirv64v1.6---", "sub-architecture unknown is not v1.6"),
        ("amdgcn---", "nvptx64---", "architecture amdgcn is not nvptx64"),
        ("gpu1---", "gpu2---", "architecture gpu1 is not gpu2"),
        ("x86_64---coff", "x86_64---elf", "object format coff is not elf"),
        ("x86_64-pc-windows-msvc", "x86_64--windows-msvc", "vendor pc is not unknown"),
    ],
)
def test_the_first_different_field_is_named(first, second, reason):
    assert triples.incompatibility(first, second) == reason
    assert (triples.incompatibility(second, first) is None) is (reason is None)


@given(TRIPLE, TRIPLE)
def test_compatibility_is_symmetric_and_every_triple_serves_itself(first, second):
    assert triples.incompatibility(first, first) is None
    is_compatible = triples.incompatibility(first, second) is None
    assert is_compatible == (triples.incompatibility(second, first) is None)
