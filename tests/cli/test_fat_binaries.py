"""The user interfaces of ``extract``, ``match``, ``target``, ``thin`` and ``merge``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from offload_tool import list_images
from offload_tool.cli import main
from tests.conftest import Capture
from tests.operations.fatbins import HOST, make_bundle

ID = "hipv4-amdgcn-amd-amdhsa--"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    images = {HOST: b"", "gfx906": b"one", "gfx90a:xnack+": b"three"}
    return make_bundle(tmp_path / "b.hipfb", images)


def test_extract_targets(bundle: Path, tmp_path: Path, capsys: Capture) -> None:
    """--target writes the images that the device would load; --json lists the written files."""
    out = tmp_path / "out"
    assert (
        main(["extract", str(bundle), "--target", "gfx906:xnack-", "--json", "-o", str(out)]) == 0
    )
    assert json.loads(capsys.readouterr().out) == [
        {
            "path": f"{out}/b.hipfb.0.{ID}gfx906",
            "file": str(bundle),
            "member": None,
            "index": 0,
            "id": f"{ID}gfx906",
            "size": 3,
            "loads": [
                {
                    "device": "gfx906:xnack-",
                    "rule": "compatible",
                    "reason": "code for any setting of xnack",
                }
            ],
        }
    ]


def test_match_fallbacks(fallbacks: Path, capsys: Capture) -> None:
    """Match explains generic code and SPIR-V, and lists loads of other devices of that ID."""
    spirv = "hip-spirv64-amd-amdhsa--amdgcnspirv (spirv: the runtime compiles it for"
    for device, expected in {
        "gfx950": f"{ID}gfx9-4-generic (generic: gfx9-4-generic covers gfx950, of which no image "
        f"serves)",
        "gfx942": f"{ID}gfx9-4-generic (generic: gfx9-4-generic covers gfx942, of which no image "
        f"serves; {ID}gfx942:xnack+ where the device has xnack+)",
        "gfx90a": f"{spirv} gfx90a, for which nothing else serves)",
        "gfx942:xnack+": f"{ID}gfx942:xnack+ (exact: its very target ID)",
    }.items():
        assert main(["match", str(fallbacks), device]) == 0
        assert capsys.readouterr().out == f"{fallbacks}, bundle 0: {expected}\n"


def test_extract_fallbacks(fallbacks: Path, tmp_path: Path, capsys: Capture) -> None:
    """Extract warns on stderr of a device without native code; paths stay on stdout."""
    command = ["extract", str(fallbacks), "--target", "gfx950", "--target", "gfx942:xnack+"]
    assert main([*command, "-o", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"{tmp_path}/out/f.0.{ID}gfx942_xnack+",
        f"{tmp_path}/out/f.0.{ID}gfx9-4-generic",
    ]
    assert captured.err == (
        f"offload-tool: note: gfx950 loads {ID}gfx9-4-generic (generic: gfx9-4-generic covers "
        "gfx950, of which no image serves)\n"
    )


def test_thin_fallbacks(fallbacks: Path, tmp_path: Path, capsys: Capture) -> None:
    """Thin warns of a device to keep without native code."""
    out = tmp_path / "out"
    assert main(["thin", str(fallbacks), "--keep", "gfx90a", "gfx942:xnack+", "-o", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  gfx90a loads hip-spirv64-amd-amdhsa--amdgcnspirv (spirv: the runtime compiles it for "
        "gfx90a, for which nothing else serves)"
    ]
    assert [i.target_id for i in list_images(out)] == ["", "gfx942:xnack+", "amdgcnspirv"]


def test_report_of_standard_output(
    bundle: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The report does not follow the data of an output that is standard output, file or pipe."""
    command = ["thin", str(bundle), "--keep", "gfx906", "-o"]
    assert main([*command, str(tmp_path / "out")]) == 0
    assert capfdbinary.readouterr().err == b""
    assert main([*command, "/dev/stdout"]) == 0
    out, err = capfdbinary.readouterr()
    piped = subprocess.run(
        [sys.executable, "-m", "offload_tool", *command, "/dev/fd/1"],
        capture_output=True,
        check=True,
    )
    assert out == piped.stdout == (tmp_path / "out").read_bytes()
    assert err.startswith(b"/dev/stdout: ")
    assert piped.stderr.startswith(b"/dev/fd/1: ")


def test_no_match(bundle: Path, capsys: Capture) -> None:
    assert main(["match", str(bundle), "gfx90a"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{bundle}, bundle 0: no image",
        f"  {ID}gfx906: processor gfx906 is not gfx90a",
        f"  {ID}gfx90a:xnack+: needs xnack+, which gfx90a leaves open",
    ]


def test_match_json(bundle: Path, capsys: Capture) -> None:
    assert main(["match", "--json", str(bundle), "gfx906"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {
            "file": str(bundle),
            "member": None,
            "container": "bundle",
            "index": 0,
            "section": None,
            "ids": [f"{ID}gfx906"],
            "loads": [{"id": f"{ID}gfx906", "rule": "exact", "reason": "its very target ID"}],
            "reasons": {},
        }
    ]


@pytest.mark.parametrize(
    ("args", "advice"),
    [
        (["match", "{}", "gfx906:xnack"], "must be a name and one sign"),
        (["match", "{}", "MI300X"], "did you mean 'gfx942'?"),
        (["target", "gfx9060"], "unknown processor 'gfx9060'"),
    ],
)
def test_no_device(args: list[str], advice: str, bundle: Path, capsys: Capture) -> None:
    """A text that is not a target ID is rejected in one line, with advice."""
    assert main([arg.format(bundle) for arg in args]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert advice in captured.err


def test_thin(bundle: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out"
    before = bundle.stat().st_size
    assert main(["thin", str(bundle), "--keep", "gfx906:xnack+", "-o", str(out)]) == 0
    after = out.stat().st_size
    assert capsys.readouterr().out == (
        f"{out}: {before:,} -> {after:,} bytes ({100 * after / before:.1f} %), "
        "1 of 2 device images kept\n"
    )
    assert [image.target_id for image in list_images(out)] == ["", "gfx906"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "gfx906:xnack+:sramecc-",
            ["target ID   gfx906:sramecc-:xnack+", "features    sramecc, xnack"],
        ),
        ("fiji", ["target ID   gfx803", "also known as fiji, polaris10, polaris11"]),
        ("gfx9-4-generic", ["covers      gfx942, gfx950"]),
        ("sm_90a", ["triple      nvptx64-nvidia-cuda-unknown"]),
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+", ["target ID   gfx90a:xnack+"]),
    ],
)
def test_target(text: str, lines: list[str], capsys: Capture) -> None:
    """The command prints the canonical form, and facts about the processor."""
    assert main(["target", text]) == 0
    assert set(lines) <= {*capsys.readouterr().out.splitlines()}
