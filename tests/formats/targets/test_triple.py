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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amdgcn", ("amdgcn", "", "", "")),
        ("amdgcn-amd-amdhsa", ("amdgcn", "amd", "amdhsa", "")),
        ("a-b-c-d-e", ("a", "b", "c", "d-e")),
        ("---", ("", "", "", "")),
    ],
)
def test_fields_fill_up_and_keep_the_rest(text, expected):
    assert triples.fields(text) == expected


@pytest.mark.parametrize(
    ("typed", "normal"),
    [
        ("x86_64--linux-gnu", "x86_64-unknown-linux-gnu"),
        ("x86_64-linux-gnu-", "x86_64-unknown-linux-gnu"),
        ("x86_64-pc-windows-", "x86_64-pc-windows-msvc"),
        ("x86_64-pc-win32-coff", "x86_64-pc-windows-msvc"),
        ("x86_64-pc-windows10-elf", "x86_64-pc-windows-elf"),
        ("i686-pc-mingw32-", "i686-pc-windows-gnu"),
        ("i686-pc-cygwin-foo", "i686-pc-windows-cygnus"),
        ("armv7-none-linux-androideabi21", "armv7-none-linux-android21"),
        ("armv7-suse-linux-gnueabi", "armv7-suse-linux-gnueabihf"),
        ("armv7-suse-linux-gnueabihft64", "armv7-suse-linux-gnueabihft64"),
        ("arm-none--eabi", "arm-unknown-none-eabi"),
        ("dxil-unknown-shadermodel6.4-pixel", "dxilv1.4-unknown-shadermodel6.4-pixel"),
        ("dxil-unknown-shadermodel5.1-pixel", "dxilv1.0-unknown-shadermodel5.1-pixel"),
        ("gnu-linux-pc-x86_64", "x86_64-pc-linux-gnu"),
        ("amdgcn-amd-amdhsa-foo", "amdgcn-amd-amdhsa-foo"),
        ("---", "unknown-unknown-unknown-unknown"),
    ],
)
def test_normal_form_sorts_known_names_into_place(typed, normal):
    assert triples.normalized(typed) == normal


@given(TRIPLE)
def test_normal_form_is_stable(triple):
    normal = triples.normalized(triple)
    assert len(normal.split("-")) == 4
    assert all(normal.split("-"))
    assert triples.normalized(normal) == normal


@pytest.mark.parametrize(
    ("typed", "emitted"),
    [
        ("amdgcn-amd-amdhsa-unknown", "amdgcn-amd-amdhsa-"),
        ("amdgcn-amd-amdhsa-foo", "amdgcn-amd-amdhsa-"),
        ("amdgcn--amdhsa-", "amdgcn-unknown-amdhsa-"),
        ("spirv64-amd-amdhsa-unknown", "spirv64-amd-amdhsa-"),
        ("amdgcn-amdhsa-amd-foo", "amdgcn-amd-amdhsa-foo"),
        ("nvptx64-nvidia-cuda-", "nvptx64-nvidia-cuda-unknown"),
    ],
)
def test_only_a_typed_amdhsa_empties_the_environment(typed, emitted):
    """The environment is emptied when the OS field as typed, not as sorted, is amdhsa."""
    assert triples.emitted(typed) == emitted


@pytest.mark.parametrize(
    ("arches", "known"),
    [
        (["amdgcn", "nvptx64", "spirv64v1.6", "amd64", "x86_64h", "kalimba5", "dxilv1.9"], True),
        (["aarch64", "armv7", "armebv7", "armv7eb", "thumbv7m", "thumbv1"], True),
        (["aarch64v8.1a", "arm64e", "arm_"], True),
        (["", "x86", "x86-64", "X86_64", "s390", "spirv1.0", "dxilv1.10", "unknown"], False),
        (["gfx906", "aarch64sve", "aarch64v8eb", "armxscale", "thumbv2", "armebv7eb"], False),
        (["armv7_eb_"], False),
    ],
)
def test_known_architectures(arches, known):
    """Lists, numbered names and ARM's grammar of names are known; near misses are not."""
    assert [triples.is_known_arch(arch) for arch in arches] == [known] * len(arches)


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
