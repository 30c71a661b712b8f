"""Bundle entry IDs against clang-offload-bundler 22: written forms, and who serves whom.

One process writes a bundle of thousands of entries, or distributes an archive of hundreds
of one-entry bundles to hundreds of targets, so that it decides every pair at once.
"""

from __future__ import annotations

import itertools
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from offload_tool.errors import EntryIDError
from offload_tool.formats.bundle.binary import read_bundle
from offload_tool.formats.objects.ar import ArchiveReader
from offload_tool.formats.targets import triple as triples
from offload_tool.formats.targets.bundle_entry_id import (
    BundleEntryID,
    find_conflicts,
    is_compatible,
)
from offload_tool.formats.targets.processors import PROCESSORS
from tests.conftest import Tool
from tests.fuzz.seeds import archive, bundle

pytestmark = pytest.mark.llvm


def split_names(text: str) -> list[str]:
    return text.split()


ARCHES = split_names("""
amdgcn nvptx64 nvptx x86_64 amd64 x86_64h i386 i686 aarch64 arm64 arm64e arm64ec aarch64_be
aarch64_32 arm64_32v8 aarch64v8.1a arm armv6m thumbv6m thumbeb armv7 armv7a thumbv7 armv7eb
armebv7l armv8.2a thumbv9 arm64eb xscale spirv spirv1.5 spirv32 spirv64 spirv64v1.6 dxil dxilv1.3
mips mipsel mipsn32 mips64 mipsisa64r6 mips64r6el ppc powerpc ppc64 powerpc64le powerpcspe riscv64
s390x systemz sparcv9 sparc64 wasm32 wasm64 bpf bpf_be r600 kalimba3 ve
""")
VENDORS = ["", *split_names("amd nvidia pc apple suse intel scei unknown none redhat")]
SYSTEMS = [
    "",
    *split_names("""
amdhsa amdhsa1 amdpal cuda linux linux5.4 windows windows10 win32 mingw32 cygwin darwin19
macosx10.15 ios visionos xros uefi aix zos freebsd wasi wasip1 shadermodel6.3 shadermodel5.1
none unknown elfiamcu foo
"""),
]
ENVIRONMENTS = [
    "",
    *split_names("""
gnu gnueabi gnueabihf gnueabihft64 gnueabi7 gnufoo gnux32 android androideabi21 musl musleabihf
msvc msvcelf cygnus eabi macabi opencl elf gnuelf coff xcoff macho macho1 wasm spirv none unknown
foo
"""),
]
ARM_VERSIONS = split_names(
    "4t 5te 6 6k 6m 6t2 7 7a 7em 7s 7l 7hl 8 8a 8.1a 8m.main 8r 9 9a 9.5a 1 7_be"
)

# Target IDs that LLVM 22 keeps, malformed ones among them, in canonical form otherwise.
KEPT_TARGET_IDS = [
    "",
    *split_names("""
gfx906 gfx906:xnack+ gfx906:xnack- gfx906:sramecc- gfx906:sramecc+ gfx906:sramecc+:xnack+
gfx906:sramecc-:xnack+ gfx908 gfx90a gfx90a:xnack+ gfx900:xnack+ gfx900 gfx1030 gfx9-generic
gfx9-4-generic gfx9-4-generic:sramecc+ gfx9-4-generic:sramecc+:xnack- amdgcnspirv sm_70 sm_90
sm_90a generic graniterapids gfx906:bogus+ gfx906:bogus+:xnack+ gfx1030:xnack+ gfx900:sramecc+
gfx906:xnack gfx906:xnack+:xnack+ sm_70:xnack+ amdgcnspirv:xnack+
"""),
]


class Bundler:
    """LLVM's bundler in a folder that holds one input, ``x``."""

    def __init__(self, path: str, folder: Path) -> None:
        self.path, self.folder = path, folder
        (folder / "x").write_bytes(b"x")

    def run(self, *arguments: str) -> str:
        command = [self.path, *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        return done.stderr.removeprefix(f"{self.path}: error: ").strip()

    def bundle(self, typed: Sequence[str]) -> str:
        """Bundle the input for each of the typed IDs; return its error message."""
        inputs = ["-input=x"] * len(typed)
        return self.run("-type=bc", f"-targets={','.join(typed)}", *inputs, "-output=o")

    def written(self, typed: Sequence[str]) -> list[str]:
        assert self.bundle(typed) == ""
        data = memoryview((self.folder / "o").read_bytes())
        return [entry.id for entry in read_bundle(data).entries]

    def served(
        self, entries: Sequence[str], targets: Sequence[str], *options: str
    ) -> list[set[int]]:
        """Return, for each target, the indices of the entries that it hands to it."""
        rows = {
            b"m%d" % number: bundle({entry.encode(): b"%06d" % number})
            for number, entry in enumerate(entries)
        }
        (self.folder / "in.a").write_bytes(archive(rows))
        outputs = [f"out{number}" for number in range(len(targets))]
        errors = self.run(
            *("-type=a", "-unbundle", "-allow-missing-bundles", "-input=in.a", *options),
            *(f"-targets={','.join(targets)}", *(f"-output={output}" for output in outputs)),
        )
        assert errors == ""
        found = [memoryview((self.folder / output).read_bytes()) for output in outputs]
        return [
            {int(bytes(data[m.offset : m.offset + m.size])) for m in ArchiveReader(data, "out")}
            for data in found
        ]


@pytest.fixture
def bundler(llvm: Tool, tmp_path: Path) -> Bundler:
    return Bundler(llvm("clang-offload-bundler"), tmp_path)


def differences(
    entries: Sequence[str], targets: Sequence[str], llvm_says: Sequence[set[int]], **options: bool
) -> tuple[int, list[tuple[str, str, bool]]]:
    """Count the pairs that serve, and list those where we and LLVM disagree."""
    read = [BundleEntryID.read(entry) for entry in entries]
    serving, different = 0, []
    for typed, theirs in zip(targets, llvm_says, strict=True):
        target = BundleEntryID.parse(typed)
        for index, entry in enumerate(read):
            ours = is_compatible(entry, target, **options)
            serving += ours
            if ours != (index in theirs):
                different.append((entries[index], str(target), ours))
    return serving, different


def unique_by_written_form(typed: Sequence[str]) -> list[str]:
    """Drop targets that are one to the bundler, which would serve only the last of them."""
    return list({str(BundleEntryID.parse(text)): text for text in typed}.values())


def random_triples(rng: random.Random, count: int) -> list[str]:
    """Random triples: fields in their places, shuffled, or any name anywhere."""
    pools = (ARCHES, VENDORS, SYSTEMS, ENVIRONMENTS)
    found: dict[str, None] = {}
    while len(found) < count:
        rest = [rng.choice(pool) for pool in pools[1:]]
        way = rng.randrange(4)
        if way == 1:
            rng.shuffle(rest)
        elif way > 1:
            rest = [rng.choice(rng.choice(pools)) for _ in range(3)]
        found["-".join([rng.choice(ARCHES), *rest])] = None
    return list(found)


@pytest.mark.llvm22
def test_triples_are_written_as_llvm_writes_them(bundler):
    typed = [f"hip-{triple}-" for triple in random_triples(random.Random(22), 3000)]
    ours = [str(BundleEntryID.parse(text)) for text in typed]
    assert ours == bundler.written(typed)


def test_kept_target_ids_are_written_as_llvm_writes_them(bundler):
    choices = itertools.product(
        ("hip", "hipv4"),
        ("amdgcn", "spirv64", "nvptx64", "x86_64"),
        ("amd-amdhsa", "nvidia-cuda", "unknown-linux"),
        KEPT_TARGET_IDS,
    )
    # An environment of its own keeps each target out of the others' composition.
    typed = [f"{kind}-{arch}-{rest}-gnu{i}-{t}" for i, (kind, arch, rest, t) in enumerate(choices)]
    assert [str(BundleEntryID.parse(text)) for text in typed] == bundler.written(typed)


@pytest.mark.llvm22
def test_every_name_in_the_table_is_kept_or_lost_as_the_table_says(bundler):
    """LLVM keeps 91 primary names, and loses alternative ones and those of newer GPUs."""
    names = [n for row in PROCESSORS.values() for n in (row.name, *row.alternative_names)]
    written = bundler.written([f"hip-amdgcn-amd-amdhsa--{name}" for name in names])
    kept = {text.rpartition("--")[2] for text in written}
    newer = {name for name in PROCESSORS if name.startswith("sm_") and name.endswith("f")}
    known = {row.name for row in PROCESSORS.values() if row.since <= 22} - newer
    assert kept - {""} == known
    assert len(known) == 91


@pytest.mark.llvm22
@pytest.mark.parametrize("seed", range(3))
def test_triples_serve_each_other_as_in_llvm(bundler, seed):
    rng = random.Random(seed)
    pools = (
        rng.sample(ARCHES, 4) + ["amdgcn"],
        [*rng.sample(VENDORS, 2), "unknown", "apple", "redhat"],
        [*rng.sample(SYSTEMS, 3), "windows", "win32", "linux"],
        [*rng.sample(ENVIRONMENTS, 3), "gnu", "gnu7", "unknown", "elf", "coff"],
    )

    def pick(count: int) -> list[str]:
        texts = ("-".join(rng.choice(pool) for pool in pools) for _ in range(count))
        return [f"hip-{text}-" for text in dict.fromkeys(texts)]

    entries = [text for text in pick(900) if not apple_on_windows_gnu(text)]
    targets = unique_by_written_form(pick(900))
    serving, different = differences(entries, targets, bundler.served(entries, targets))
    assert different == []
    assert len(entries) * len(targets) > 200_000
    assert serving > 1000


def apple_on_windows_gnu(entry: str) -> bool:
    """Return whether LLVM's rule for Apple takes this for code of any vendor's Windows."""
    meaning = triples.meaning(BundleEntryID.read(entry).triple)
    return (meaning.vendor, meaning.system, meaning.environment) == ("apple", "windows", "gnu")


def test_architectures_serve_each_other_as_in_llvm(bundler):
    bases = ("arm", "armeb", "thumb", "arm64", "arm64_32", "aarch64_be")
    arms = [f"{base}v{version}" for base in bases for version in ARM_VERSIONS]
    arms += [f"{base}v{version}eb" for base in ("arm", "arm64") for version in ARM_VERSIONS]
    ids = [f"hip-{arch}-unknown-unknown-unknown-" for arch in dict.fromkeys([*ARCHES, *arms])]
    serving, different = differences(ids, ids, bundler.served(ids, ids))
    assert different == []
    assert serving > 2 * len(ids)


@pytest.mark.llvm22
@pytest.mark.parametrize("options", [(), ("-hip-openmp-compatible",)], ids=["strict", "hip-openmp"])
def test_kinds_and_target_ids_serve_each_other_as_in_llvm(bundler, options):
    rng = random.Random(4)
    arches = [*["amdgcn"] * 8, "nvptx64", "spirv64", "x86_64", "r600"]

    def pick(kinds: Sequence[str], count: int) -> list[tuple[str, ...]]:
        pools = (kinds, arches, KEPT_TARGET_IDS)
        return [tuple(rng.choice(pool) for pool in pools) for _ in range(count)]

    kinds = ["hip", "hipv4", "openmp"]
    entries = [f"{k}-{a}-amd-amdpal-e-{t}" for k, a, t in pick([*kinds, "HIPfoo", "cuda"], 500)]
    entries += [f"{k}-{a}-amd-amdpal-e-{t}" for k, a, t in pick(kinds, 1000)]
    entries = list(dict.fromkeys(entries))
    # An environment of its own keeps each target out of the others' composition.
    targets = [f"{k}-{a}-amd-amdpal-e{i}-{t}" for i, (k, a, t) in enumerate(pick(kinds, 600))]
    targets.append("host-x86_64-amd-amdpal-e-")
    serving, different = differences(
        entries, targets, bundler.served(entries, targets, *options), hip_openmp=bool(options)
    )
    assert different == []
    assert len(entries) * len(targets) > 250_000
    assert serving > 900


DELIBERATE = [
    # entry in the file, target asked for, LLVM 22, ours
    ("--gfx1398", "--gfx1399", True, False),  # both lost: any two unknown processors match
    ("--gfx1399:xnack+", "--gfx1399:xnack-", True, False),
    ("--gfx1399", "--", True, False),
    ("--tahiti", "--verde", True, False),
    ("--sm_100f", "--sm_120f", True, False),
    ("--tahiti", "--gfx600", False, True),  # alternative names are names
    ("--gfx600", "--tahiti", False, True),
    ("-gfx906", "--gfx906", False, True),  # a triple of three fields
    ("-gfx906:xnack-", "--gfx906:xnack-", False, True),
    ("v4--gfx1399", "--gfx1399", False, True),  # "" is never the same for hip and hipv4
]


@pytest.mark.llvm22
@pytest.mark.parametrize(("entry", "target", "theirs", "ours"), DELIBERATE)
def test_deliberate_differences_are_as_documented(bundler, entry, target, theirs, ours):
    kind, rest = ("hipv4", entry[2:]) if entry.startswith("v4") else ("hip", entry)
    stored, wanted = f"{kind}-amdgcn-amd-amdhsa{rest}", f"hip-amdgcn-amd-amdhsa{target}"
    (got,) = bundler.served([stored], [wanted])
    assert bool(got) == theirs
    assert is_compatible(BundleEntryID.read(stored), BundleEntryID.parse(wanted)) == ours


def test_the_rule_for_apple_on_windows_is_not_copied(bundler):
    entry, target = "hip-x86_64-apple-windows-gnu-", "hip-x86_64-pc-windows-msvc-"
    assert apple_on_windows_gnu(entry)
    assert bundler.served([entry], [target]) == [{0}]
    assert not is_compatible(BundleEntryID.read(entry), BundleEntryID.parse(target))


@pytest.mark.parametrize(
    "typed",
    ["", "hip-amdgcn-amd-amdhsa", "cuda-nvptx64-nvidia-cuda-", "sycl-x86-64-b-c-d"]
    + ["hip-s390-a-b-c-d", "sycl-x-y-z--", "hip-x86-64-a-b-gfx906"]
    + ["Hip-amdgcn-amd-amdhsa--", "hip-thumbv2-a-b-c", "hip-dxilv1.10-a-b-c", "hip-armxscale-a-b-"],
)
def test_errors_are_llvms_word_for_word(bundler, typed):
    with pytest.raises(EntryIDError) as caught:
        BundleEntryID.parse(typed)
    assert bundler.bundle([typed]) == str(caught.value)


@pytest.mark.parametrize("seed", range(12))
def test_conflicts_begin_with_llvms_words_and_its_pair(bundler, seed):
    """Of the conflicts in a random set, the first that LLVM looks for is the one it names.

    It looks only for features that the later ID sets and the first one leaves open.
    """
    rng = random.Random(seed)
    signs = [("", "+", "-"), ("", "+", "-")]
    typed = []
    for _ in range(rng.randrange(2, 6)):
        chosen = zip(("sramecc", "xnack"), map(rng.choice, signs), strict=True)
        features = "".join(f":{name}{sign}" for name, sign in chosen if sign)
        typed.append(f"hip-amdgcn-amd-amdhsa--{rng.choice(['gfx906', 'gfx90a'])}{features}")
    typed = list(dict.fromkeys(typed))
    conflicts = find_conflicts(BundleEntryID.parse(text) for text in typed)
    looked_for = [c for c in conflicts if not later_sets_fewer(c)]
    error = bundler.bundle(typed)
    assert error == (looked_for[0].partition(", set ")[0] if looked_for else "")


def later_sets_fewer(conflict: str) -> bool:
    _, first, _, second, *_ = conflict.split("'")
    return all(f":{name}" in first for name in ("sramecc", "xnack") if f":{name}" in second)


def test_a_later_id_that_sets_fewer_features_is_a_conflict_to_us_alone(bundler):
    typed = [f"hip-amdgcn-amd-amdhsa--gfx906:{f}" for f in ("sramecc+:xnack+", "sramecc-")]
    assert bundler.bundle(typed) == ""
    assert len(find_conflicts(map(BundleEntryID.parse, typed))) == 1
