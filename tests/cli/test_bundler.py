"""``offload-tool bundler`` against clang-offload-bundler 22, and intended differences."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from offload_tool import BundleEntryID
from offload_tool.cli.llvm.bundler import run_bundler
from offload_tool.formats.targets.bundle_entry_id import is_compatible
from tests.cli.side_by_side import Bench, Result
from tests.cli.test_bundler_compression import without_speed
from tests.conftest import Tool, run_tool, try_tool

HOST = "host-x86_64-unknown-linux-gnu-"
GPU = "hip-amdgcn-amd-amdhsa--"
TEXT = ["i", "ii", "cui", "hipi", "d", "ll", "s"]
TYPES = [*TEXT, "bc", "gch", "ast", "o"]


@pytest.fixture
def bench(tmp_path: Path, llvm: Tool, capfdbinary) -> Bench:
    """Return both programs, and inputs f0 to f5 of 0 bytes to 1 MB, some of them text."""
    made = Bench(run_bundler, tmp_path, llvm("clang-offload-bundler"), capfdbinary)
    source = random.Random(0)
    for index, size in enumerate([0, 1, 7, 100, 4096, 1 << 20]):
        made.write(f"f{index}", b"line of text\n" * (size // 13) if index % 2 else bytes(size))
    made.write("f2", source.randbytes(7))
    made.write("f4", source.randbytes(4096))
    return made


@pytest.fixture
def host_object(bench: Bench, llvm: Tool) -> str:
    source = bench.folder / "host.c"
    source.write_text("int host(void) { return 1; }\n")
    run_tool(llvm("clang"), "-c", source, "-o", bench.folder / "host.o")
    bench.write("host.o", (bench.folder / "host.o").read_bytes())
    return "host.o"


DEVICES = [
    *(GPU + target for target in ("gfx906", "gfx90a:xnack+", "gfx90a:xnack-", "gfx1100")),
    *("hipv4-amdgcn-amd-amdhsa--gfx942", "hip-amdgcn-amd-amdhsa-unknown-gfx1030"),
    *("openmp-amdgcn-amd-amdhsa--gfx908", "openmp-nvptx64-nvidia-cuda--sm_70"),
    *("openmp-x86_64-pc-linux-gnu-", "hip-spirv64-amd-amdhsa-unknown-amdgcnspirv"),
]
WRONG = ["cuda-nvptx64-nvidia-cuda--sm_70", "hip-foo-amd-amdhsa--gfx906", "hip-amdgcn", "host-a-b"]


def ambiguous(entries: Sequence[str], targets: Sequence[str], *, hip_openmp: bool) -> bool:
    """Return whether LLVM's hash order decides the assignment, which we do not reproduce."""
    stored = [BundleEntryID.parse(text) for text in entries]
    wanted = [BundleEntryID.parse(text) for text in targets]
    pairs = [
        (entry, target)
        for entry in stored
        for target in wanted
        if is_compatible(entry, target, hip_openmp=hip_openmp)
    ]
    return len(pairs) != len({entry for entry, _ in pairs}) or len(pairs) != len(
        {target for _, target in pairs}
    )


@pytest.mark.llvm
@pytest.mark.parametrize("seed", range(10))
def test_random_runs(bench: Bench, host_object: str, seed: int) -> None:
    """Random bundling, listing and unbundling: equal bytes, messages and exit statuses."""
    rnd = random.Random(seed)
    for _ in range(25):
        bundled = random_bundling(rnd, host_object)
        made = bench.assert_same(bundled.arguments, ["out"])
        if made.status:
            continue
        listed = [f"-type={bundled.type}", "-list", "-input=out"]
        ours, theirs = bench.ours(*listed), bench.theirs(*listed)
        assert sorted(ours.output.split()) == sorted(theirs.output.split())
        for _ in range(2):
            arguments, outputs = random_unbundling(rnd, bundled)
            if arguments:
                bench.assert_same(arguments, outputs)


@dataclass(frozen=True)
class Bundled:
    """Return a random command line for bundling."""

    type: str
    targets: list[str]
    arguments: list[str]


def random_bundling(rnd: random.Random, host_object: str) -> Bundled:
    file_type = rnd.choice(TYPES)
    targets = rnd.sample(DEVICES, rnd.randint(0, 6))
    if rnd.random() < 0.05:
        targets.append(rnd.choice(WRONG))
    if rnd.random() < 0.9:
        targets.insert(rnd.randint(0, len(targets)), HOST[:-1])
    inputs = [f"f{rnd.randint(0, 5)}" for _ in targets]
    if HOST[:-1] in targets and file_type == "o" and rnd.random() < 0.6:
        inputs[targets.index(HOST[:-1])] = host_object
    if inputs and rnd.random() < 0.05:
        inputs[0] = "missing"
    arguments = [f"-type={file_type}", f"-targets={','.join(targets)}", "-output=out"]
    arguments += rnd.choice([[f"-input={f}" for f in inputs], [f"-inputs={','.join(inputs)}"]])
    if rnd.random() < 0.4:
        arguments.append(f"--bundle-align={rnd.choice([1, 2, 3, 8, 100, 4096])}")
    rnd.shuffle(arguments)
    if rnd.random() < 0.05:
        arguments.pop()
    return Bundled(file_type, targets, arguments)


def random_unbundling(rnd: random.Random, bundled: Bundled) -> tuple[list[str], list[str]]:
    targets = rnd.sample(bundled.targets, rnd.randint(0, len(bundled.targets)))
    targets += rnd.sample(DEVICES, rnd.choice([0, 0, 0, 1]))
    targets = list(dict.fromkeys(targets))
    flags = [f for f in ("-allow-missing-bundles", "-hip-openmp-compatible") if rnd.random() < 0.3]
    if ambiguous(bundled.targets, targets, hip_openmp="-hip-openmp-compatible" in flags):
        return [], []
    outputs = [f"u{index}" for index in range(len(targets))]
    arguments = [f"-type={bundled.type}", "-unbundle", "-input=out", *flags]
    arguments += [f"-output={name}" for name in outputs]
    if targets:
        arguments.append(f"-targets={','.join(targets)}")
    return arguments, outputs


PLAIN = [f"-targets={HOST},{GPU}gfx906", "-input=f3", "-input=f4", "-output=out", "-type=bc"]
READ = [f"-targets={HOST},{GPU}gfx906", "-type=bc", "-unbundle", "-output=u0", "-output=u1"]
ONE = ["-type=bc", "-input=f1", "-output=out"]
TWO = [*ONE, "-input=f2"]

COMMANDS = {
    "both-input-spellings": ["-type=bc", "-input=f1", "-inputs=f1", f"-targets={HOST}"],
    "both-output-spellings": ["-type=bc", "-input=f1", "-output=o", "-outputs=o"],
    "list-and-unbundle": ["-type=bc", "-list", "-unbundle", "-input=f1"],
    "list-two": ["-type=bc", "-list", "-input=f1", "-input=f2"],
    "list-none": ["-type=bc", "-list"],
    "list-output": ["-type=bc", "-list", "-input=f1", "-output=out"],
    "list-targets": ["-type=bc", "-list", "-input=f1", f"-targets={HOST}"],
    "list-missing": ["-type=bc", "-list", "-input=missing"],
    "list-no-bundle": ["-type=bc", "-list", "-input=f3"],
    "list-empty": ["-type=o", "-list", "-input=f0"],
    "list-bad-type": ["-type=zz", "-list", "-input=f3"],
    "list-archive": ["-type=a", "-list", "-input=f3"],
    "check-bundling": [*PLAIN, "-check-input-archive"],
    "check-no-archive": [*READ, "-input=f3", "-check-input-archive"],
    "no-output": ["-type=bc", f"-targets={HOST}", "-input=f1"],
    "no-targets": ONE,
    "two-inputs": [*READ, "-input=f1", "-input=f2"],
    "no-input": READ,
    "fewer-outputs": [*READ[:-1], "-input=f3"],
    "more-outputs": [*READ, "-output=u2", "-input=f3"],
    "archive-bundling": [*PLAIN[:-1], "-type=a"],
    "two-outputs": [*PLAIN, "-output=second"],
    "fewer-inputs": [*PLAIN[:1], *PLAIN[2:]],
    "duplicate": [*TWO, f"-targets={HOST},{HOST}"],
    "two-hosts": [*TWO, f"-targets={HOST},host-aarch64-unknown-linux-gnu-"],
    "no-host": [*ONE, "-targets=openmp-x86_64-pc-linux-gnu-"],
    "conflict": [*TWO, f"-targets={GPU}gfx90a:xnack+,{GPU}gfx90a"],
    "fewer-features-later": [*TWO, f"-targets={GPU}gfx90a:sramecc+:xnack+,{GPU}gfx90a:sramecc-"],
    "short-triple": [*ONE, "-targets=hip-amdgcn-amd"],
    "unknown-kind-and-arch": [*ONE, "-targets=x-y-z-v-w-"],
    "empty-target": [*ONE, "-targets="],
    "missing-input": [*PLAIN[:2], "-input=missing", *PLAIN[3:]],
    "folder-input": [*PLAIN[:2], "-input=.", *PLAIN[3:]],
    "bad-type": [*PLAIN[:-1], "-type=zz"],
    "bad-type-missing-input": [*PLAIN[:2], "-input=missing", *PLAIN[3:-1], "-type=zz"],
    "output-nowhere": [*PLAIN[:3], "-output=no/out", PLAIN[4]],
    "unbundle-nothing": [*READ, "-input=f3"],
    "unbundle-nothing-allowed": [*READ, "-input=f3", "-allow-missing-bundles"],
    "unbundle-empty-allowed": [*READ, "-input=f0", "-allow-missing-bundles"],
    "unknown-option": [*PLAIN, "-bundle-alignment=3"],
    "no-type": PLAIN[:-1],
}


@pytest.mark.llvm
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS.keys())
def test_messages(bench: Bench, arguments: list[str]) -> None:
    """Each check has LLVM's message and exit status, in LLVM's order."""
    bench.assert_same(arguments, ["out", "u0", "u1"])


@pytest.mark.llvm
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_missing_bundles(bench: Bench, count: int) -> None:
    """The error lists missing bundles like LLVM's, and nothing is written."""
    assert bench.ours(*PLAIN).status == bench.theirs(*PLAIN).status == 0
    targets = [HOST, *(GPU + name for name in ("gfx942", "gfx1030", "gfx908", "gfx1100")[:count])]
    names = [f"u{index}" for index in range(count + 1)]
    arguments = ["-type=bc", "-unbundle", "-input=out", f"-targets={','.join(targets)}"]
    result = bench.assert_same([*arguments, *(f"-output={name}" for name in names)], names)
    assert result.status == 1


@pytest.mark.llvm
@pytest.mark.parametrize("file_type", ["o", "a"])
def test_list_of_archives_and_others(
    bench: Bench, llvm: Tool, host_object: str, file_type: str
) -> None:
    """-type=a lists the same as -type=o; an archive of bundles has no IDs."""
    targets = f"-targets={HOST},{GPU}gfx906"
    fat = ["-type=o", targets, f"-input={host_object}", "-input=f4", "-output=fat.o"]
    for made in ([*PLAIN, "-output=plain"], [*PLAIN, "-output=small", "-compress"], fat):
        args = [word for word in made if word != "-output=out"]
        assert bench.theirs(*args).status == 0
    folder = bench.folder / "theirs"
    run_tool(llvm("llvm-ar"), "rc", "a.a", "fat.o", cwd=folder)
    (folder / "cut").write_bytes((folder / "small").read_bytes()[:20])
    for name in ("plain", "small", "fat.o", "a.a", "cut"):
        bench.write(name, (folder / name).read_bytes())
    listed = []
    for name in ("plain", "small", "fat.o", host_object, "a.a", "f0", "f3"):
        args = [f"-type={file_type}", "-list", f"-input={name}"]
        ours, theirs = bench.ours(*args), bench.theirs(*args)
        assert (ours.status, theirs.status) == (0, 0)
        assert sorted(ours.output.splitlines()) == sorted(theirs.output.splitlines())
        listed += [name] if ours.output else []
    assert listed == ["plain", "small", "fat.o"]
    args = [f"-type={file_type}", "-list", "-input=cut"]
    assert (bench.ours(*args).status, bench.theirs(*args).status) == (1, 1)


@pytest.mark.llvm
@pytest.mark.parametrize("file_type", ["bc", "s", "o"])
@pytest.mark.parametrize("target", ["amdgcn-amd-amdhsa-gfx906", "nvptx64-nvidia-cuda-sm_70"])
def test_triples_of_three_fields(
    bench: Bench, host_object: str, target: str, file_type: str
) -> None:
    """A bundle that LLVM made for such a target is unbundled by the same arguments."""
    args = [f"-type={file_type}", f"-targets={HOST},openmp-{target}"]
    host = host_object if file_type == "o" else "f1"
    assert bench.theirs(*args, f"-input={host}", "-input=f5", "-output=made").status == 0
    bench.write("made", bench.content("theirs", "made"))
    unbundle = [*args, "-unbundle", "-input=made", "-output=u0", "-output=u1"]
    assert (bench.ours(*unbundle).status, bench.theirs(*unbundle).status) == (0, 0)
    assert bench.content("ours", "u1") == bench.content("theirs", "u1") is not None


VARIABLES = {
    "verbose": {"OFFLOAD_BUNDLER_VERBOSE": "1"},
    "verbose-other": {"OFFLOAD_BUNDLER_VERBOSE": "yes"},
    "compress-other": {"OFFLOAD_BUNDLER_COMPRESS": "true"},
    "ignored": {
        "OFFLOAD_BUNDLER_IGNORE_ENV_VAR": "1",
        "OFFLOAD_BUNDLER_COMPRESS": "1",
        "COMPRESSED_BUNDLE_FORMAT_VERSION": "9",
    },
}


@pytest.mark.llvm22
@pytest.mark.llvm
@pytest.mark.parametrize("variables", VARIABLES.values(), ids=VARIABLES.keys())
def test_environment(bench: Bench, variables: dict[str, str]) -> None:
    """Environment variables have the same effects as on LLVM's program, including warnings."""
    bench.environ |= variables
    bench.assert_same(PLAIN, ["out"])
    bench.assert_same([*READ, "-input=out"], ["u0", "u1"])


@pytest.mark.llvm
@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("level", [None, "-5", "1", "19"])
@pytest.mark.parametrize("file_type", ["bc", "s"])
def test_compressed(bench: Bench, version: str, level: str | None, file_type: str) -> None:
    """LLVM unbundles our compressed bundles, and we LLVM's, in both versions, at any level."""
    bench.environ["COMPRESSED_BUNDLE_FORMAT_VERSION"] = version
    write = [*PLAIN[:-1], f"-type={file_type}", "-compress"]
    if level is not None:
        write.append(f"-compression-level={level}")
    assert bench.ours(*write) == bench.theirs(*write) == Result(0, b"", "")
    ours, theirs = bench.content("ours", "out"), bench.content("theirs", "out")
    assert ours[:8] == theirs[:8] == b"CCOB" + bytes([int(version), 0, 1, 0])
    bench.folder.joinpath("ours/out").write_bytes(theirs)
    bench.folder.joinpath("theirs/out").write_bytes(ours)
    read = [*READ[:1], f"-type={file_type}", *READ[2:], "-input=out"]
    bench.assert_same(read, ["u0", "u1"])
    assert bench.content("ours", "u1") == bench.content("ours", "f4")


@pytest.mark.llvm22
@pytest.mark.llvm
@pytest.mark.parametrize("version", ["2", "3"])
def test_verbose_reports(bench: Bench, version: str) -> None:
    """-verbose prints LLVM's report, but for the speed, of files that both make equally small."""
    bench.environ["COMPRESSED_BUNDLE_FORMAT_VERSION"] = version
    for name in ("f3", "f4"):
        bench.write(name, b"something to compress, something to compress" * 1000)
    for arguments in ([*PLAIN, "-compress", "-verbose"], [*READ, "-input=out", "-verbose"]):
        both = (run(*arguments).errors.splitlines() for run in (bench.ours, bench.theirs))
        ours, theirs = map(without_speed, both)
        assert ours == theirs
        bench.write("out", bench.content("theirs", "out"))
    bench.assert_same([*PLAIN, "-compress=0"], ["out"])
    assert bench.assert_same([*READ, "-input=out", "-verbose"]).errors == "Uncompressed bundle.\n"


@pytest.mark.llvm
def test_objects(bench: Bench, host_object: str) -> None:
    """The object bundle has LLVM's bytes; unbundling returns the host object without sections."""
    bench.write("nul", b"\0")  # what stands for the host, where that is bundled
    targets = f"-targets={HOST},{GPU}gfx906,openmp-x86_64-pc-linux-gnu-,{GPU}gfx908"
    inputs = [f"-input={name}" for name in (host_object, "f4", "f0", "nul")]
    bench.assert_same(["-type=o", targets, *inputs, "-output=out"], ["out"])
    outputs = ["u0", "u1", "u2", "u3"]
    read = ["-type=o", "-unbundle", targets, "-input=out", *(f"-output={name}" for name in outputs)]
    assert bench.ours(*read).status == 0
    for name, content in zip(outputs[1:], ("f4", "f0", "nul"), strict=True):
        assert bench.content("ours", name) == bench.content("ours", content)
    host = bench.content("ours", "u0")
    assert b"__CLANG_OFFLOAD_BUNDLE__" not in host
    bench.theirs(*read)
    assert host == bench.content("theirs", "u0")


@pytest.mark.llvm
def test_printed_commands(bench: Bench, host_object: str) -> None:
    write = ["-type=o", f"-targets={GPU}gfx906,{HOST}", "-input=f4", f"-input={host_object}"]
    bench.theirs(*write, "-output=fat")
    bench.write("fat", bench.content("theirs", "fat") or b"")
    for arguments in (write, ["-type=o", f"-targets={HOST}", "-unbundle", "-input=fat"]):
        ours = bench.ours(*arguments, "-output=out", "-###")
        theirs = bench.theirs(*arguments, "-output=out", "-###")
        assert masked(ours.errors) == masked(theirs.errors)
        assert '"llvm-objcopy"' in ours.errors
        assert bench.content("ours", "out") is None


def masked(text: str) -> list[str]:
    args = text.split()
    return [
        "TEMPORARY" if ".tmp" in word else word.rpartition("/")[2] if i == 0 else word
        for i, word in enumerate(w.replace('"', "") for w in args)
    ]


@pytest.mark.llvm
def test_standard_streams(bench: Bench) -> None:
    """``-`` is standard input and output, in a pipeline of both programs."""
    ours = [sys.executable, "-m", "offload_tool", "bundler"]
    run = partial(subprocess.run, cwd=bench.folder / "ours", check=True, capture_output=True)
    write = [*PLAIN, "-output=-"]
    write.remove("-output=out")
    streamed = run([*ours, *write]).stdout
    assert streamed == run([bench.tool, *write]).stdout
    read = ["-type=bc", "-unbundle", f"-targets={GPU}gfx906", "-input=-", "-output=-"]
    for command in (ours, [bench.tool]):
        assert run([*command, *read], input=streamed).stdout == bench.content("ours", "f4")


def test_warning_that_nobody_hears(alone: Bench) -> None:
    """If standard error is not writable, a due warning makes the status 1."""
    write = ["-type=bc", f"-targets={GPU}gfx9999", "-input=f4", "-output=out"]
    command = [sys.executable, "-m", "offload_tool", "bundler", *write]
    for stream, status in (("/dev/null", 0), ("/dev/full", 1)):
        with Path(stream).open("w") as errors:
            done = subprocess.run(command, cwd=alone.folder / "ours", stderr=errors, check=False)
        assert done.returncode == status


# ---- where we differ on purpose (the table of the documentation) -------------------------


@pytest.fixture
def alone(tmp_path: Path, capfdbinary) -> Bench:
    made = Bench(run_bundler, tmp_path, "bundler", capfdbinary)
    made.write("f3", b"host")
    made.write("f4", b"device")
    return made


def test_several_bundles_in_a_file(alone: Bench) -> None:
    folder = alone.folder / "ours"
    pieces = []
    for index, extra in enumerate([[], ["-compress"], ["-compress"], []]):
        target = f"{GPU}gfx{['906', '908', '942', '1100'][index]}"
        made = alone.ours(*("-type=bc", f"-targets={target}", "-input=f4", "-output=out", *extra))
        assert made.status == 0
        pieces.append((folder / "out").read_bytes() + bytes(index * 50))
    (folder / "all").write_bytes(b"".join(pieces))
    listed = alone.ours("-type=o", "-list", "-input=all")
    assert listed.output.decode().split() == [GPU + f"gfx{n}" for n in (906, 908, 942, 1100)]
    for target in ("gfx906", "gfx908", "gfx942", "gfx1100"):
        read = ["-type=o", "-unbundle", "-input=all", f"-targets={GPU}{target}", "-output=u"]
        assert alone.ours(*read) == Result(0, b"", "")
        assert alone.content("ours", "u") == b"device"


def test_unknown_processor(alone: Bench) -> None:
    """A newer GPU's target ID is kept, with a warning; LLVM loses it."""
    made = alone.ours("-type=bc", f"-targets={GPU}gfx9999", "-input=f4", "-output=out")
    assert made.status == 0
    assert "warning: unknown processor 'gfx9999'" in made.errors
    listed = alone.ours("-type=bc", "-list", "-input=out")
    assert listed.output.decode() == f"{GPU}gfx9999\n"


def test_one_id_in_two_spellings(alone: Bench) -> None:
    """Two spellings of one ID, which make LLVM write a corrupt file, are rejected by name."""
    old = "hip-amdgcn-amd-amdhsa-unknown-gfx906"
    arguments = ["-type=bc", f"-targets={GPU}gfx906,{old}", "-input=f3", "-input=f4"]
    made = alone.ours(*arguments, "-output=out")
    assert made.status == 1
    assert f"'{GPU}gfx906' and '{old}' are both" in made.errors
    assert alone.content("ours", "out") is None


def test_hip_targets_with_an_elf_first(alone: Bench) -> None:
    """HIP code objects without a host make a binary bundle; LLVM crashes."""
    alone.write("f4", b"\x7fELF\x02\x01\x01" + bytes(57))
    made = alone.ours("-type=o", f"-targets={GPU}gfx906", "-input=f4", "-output=out")
    assert made == Result(0, b"", "")
    bundle = alone.content("ours", "out")
    assert bundle.startswith(b"__CLANG_OFFLOAD_BUNDLE__")


def test_alignment_of_zero(alone: Bench) -> None:
    """-bundle-align=0, which crashes LLVM, is rejected."""
    arguments = [f"-targets={GPU}gfx906", "-type=bc", "-input=f4", "-output=out"]
    message = "bundler: error: bundle alignment must be at least 1, not 0\n"
    assert alone.ours(*arguments, "-bundle-align=0") == Result(1, b"", message)


def test_output_over_the_input(alone: Bench) -> None:
    arguments = [f"-targets={HOST},{GPU}gfx906", "-type=bc", "-input=f3", "-input=f4"]
    assert alone.ours(*arguments, "-output=expected").status == 0
    assert alone.ours(*arguments, "-output=f3").status == 0
    assert alone.content("ours", "f3") == alone.content("ours", "expected")


def test_no_tool_is_needed(alone: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    made = alone.ours("-type=bc", f"-targets={GPU}gfx906", "-input=f4", "-output=out")
    assert made == Result(0, b"", "")


@pytest.mark.parametrize("job", [[], ["-compress"], ["-unbundle"]], ids=str)
def test_full_disk(alone: Bench, job: list[str]) -> None:
    """If the disk is full, the status is 1, the error names the file, and no output exists."""
    folder = alone.folder / "ours"
    alone.write("f4", random.Random(0).randbytes(200_000))
    write = ["-type=bc", f"-targets={HOST},{GPU}gfx906", "-input=f3", "-input=f4", "-output=out"]
    arguments = [*write, *job]
    if job == ["-unbundle"]:
        assert alone.ours(*write).status == 0
        arguments = [*write[:2], *job, "-input=out", "-output=u0", "-output=u1"]
    script = (
        "import resource, sys\n"
        "from offload_tool.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "sys.exit(main(['bundler', *sys.argv[1:]]))\n"
    )
    before = sorted(path.name for path in folder.iterdir())
    # Bytecode would be truncated, too.
    done = try_tool(sys.executable, "-B", "-c", script, *arguments, cwd=folder)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "File too large" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before
