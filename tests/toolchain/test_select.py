"""Finding a compiler: the order, the demands, and what is said when there is none."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from offload_tool.errors import CompilerError
from offload_tool.passes.choose_compiler import find_toolchain
from offload_tool.toolchain import ziglang
from offload_tool.toolchain.probe import Toolchain
from tests.conftest import run_tool
from tests.scripts import script

TARGETS = "  Registered Targets:\n    amdgcn - AMD GCN GPUs\n    x86-64 - 64-bit X86\n"


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the embedded compiler."""

    def nothing() -> None:
        raise CompilerError("the embedded compiler (PyPI's ziglang) is not installed")

    monkeypatch.setattr(ziglang, "probe_embedded", nothing)


def fake_clang(path: Path, version: str, *, targets: str = TARGETS, lld: bool = True) -> Path:
    """Write a script that answers what a compiler is asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    linker = path.parent / "lld"
    if lld:
        script(linker, "")
    script(
        path,
        "for last; do :; done\ncase $last in\n"
        f"--version) echo 'Vendor clang version {version}-7 (abc)'; echo 'Target: x86_64-a-b-c';;\n"
        f"-print-targets) printf '%s' '{targets}';;\n"
        f"-print-prog-name=lld) echo {linker if lld else 'lld'};;\n"
        "*) exit 1;; esac",
    )
    return path


def test_a_name_with_a_space(tmp_path: Path) -> None:
    """Where an unquoted name of a file has a space, the message says how it is quoted."""
    clang = fake_clang(tmp_path / "ll vm/clang", "22.1.0")
    with pytest.raises(CompilerError) as caught:
        find_toolchain(clang=f"{clang} --sysroot=/")
    quoted = f"'{clang}' --sysroot=/"
    assert f'which has a space: OFFLOAD_CLANG="{quoted}"' in str(caught.value)
    assert find_toolchain(clang=quoted).clang == (str(clang), "--sysroot=/")


def test_newest_on_path(tmp_path: Path, no_wheel: None) -> None:
    """The newest clang of all folders on PATH is taken, whatever it is called."""
    fake_clang(tmp_path / "a/clang-18", "18.1.0")
    newest = fake_clang(tmp_path / "b/clang", "21.0.1")
    fake_clang(tmp_path / "b/clang-9", "9.0.0")
    fake_clang(tmp_path / "b/clang-format-30", "30.0.0")
    found = find_toolchain({"PATH": f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}"})
    assert found.clang == (str(newest),)
    assert (found.version, found.major) == ("21.0.1", 21)
    assert found.identity.startswith("Vendor clang version 21.0.1-7 (abc); Target: x86_64-a-b-c; ")
    assert found.host_triple == "x86_64-a-b-c"
    assert str(found) == f"clang 21.0.1 ({newest})"


def test_rocm_goes_before_path(tmp_path: Path, no_wheel: None) -> None:
    """ROCm's clang is preferred to a newer one on PATH, and OFFLOAD_CLANG to both."""
    rocm = fake_clang(tmp_path / "rocm/llvm/bin/clang", "19.0.0")
    fake_clang(tmp_path / "bin/clang-22", "22.0.0")
    named = fake_clang(tmp_path / "named/my-clang", "19.0.1")
    environ = {"PATH": str(tmp_path / "bin"), "ROCM_PATH": str(tmp_path / "rocm")}
    assert find_toolchain(environ).clang == (str(rocm),)
    assert find_toolchain(environ | {"OFFLOAD_CLANG": str(named)}).clang == (str(named),)
    assert find_toolchain(environ, clang=f"{named} -v").clang == (str(named), "-v")


def test_unusable_ones_are_passed_over(tmp_path: Path, no_wheel: None) -> None:
    """A clang that is too old, without AMDGPU or broken is not a candidate."""
    fake_clang(tmp_path / "a/clang-30", "30.0.0", targets="  x86-64 - 64-bit X86\n")
    fake_clang(tmp_path / "c/clang-28", "16.0.0")
    (fake_clang(tmp_path / "d/clang-27", "1.0.0")).write_text("#!/bin/sh\nexit 3\n")
    good = fake_clang(tmp_path / "e/clang-26", "26.0.0")
    path = os.pathsep.join(str(tmp_path / name) for name in "acde")
    assert find_toolchain({"PATH": path}).clang == (str(good),)


def test_none_at_all(tmp_path: Path, no_wheel: None) -> None:
    """With no usable compiler, every candidate's reason is a line, and so is a way out."""
    fake_clang(tmp_path / "clang-30", "30.0.0", targets="")
    fake_clang(tmp_path / "clang", "16.0.6")
    with pytest.raises(CompilerError) as caught:
        find_toolchain({"PATH": str(tmp_path)})
    first, *reasons, advice = str(caught.value).splitlines()
    assert first == "no usable compiler:"
    assert reasons == [
        f"  {tmp_path}/clang-30 (clang 30.0.0) was built without the AMDGPU target",
        f"  {tmp_path}/clang is clang 16.0.6, but >= 19 is needed",
        "  the embedded compiler (PyPI's ziglang) is not installed",
    ]
    assert "pip install 'ziglang==" in advice


def test_no_lld(tmp_path: Path, no_wheel: None) -> None:
    """A clang without any lld could not link device code, and is refused for that."""
    fake_clang(tmp_path / "clang-20", "20.0.0", lld=False)
    with pytest.raises(CompilerError, match=r"clang-20 \(clang 20.0.0\) finds no lld"):
        find_toolchain({"PATH": str(tmp_path)})


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("/no/such/clang", "not an executable file"),
        ("clang '", "is not a command"),
        ("   ", "not an executable file"),
        ("{}/clang-20", "without the AMDGPU target; set OFFLOAD_CLANG to"),
    ],
    ids=["missing", "quote", "blank", "no AMDGPU"],
)
def test_named_compiler_must_work(tmp_path: Path, named: str, message: str) -> None:
    """A compiler that the user named is never silently replaced by another one."""
    fake_clang(tmp_path / "clang-20", "20.0.0", targets="  x86-64 - X86\n")
    with pytest.raises(CompilerError, match=message):
        find_toolchain({"PATH": "/usr/bin", "OFFLOAD_CLANG": named.format(tmp_path)})


def test_lld_elsewhere_on_path(tmp_path: Path, no_wheel: None) -> None:
    """Where lld is not beside clang but on PATH, clang is told with -B."""
    fake_clang(tmp_path / "a/clang-20", "20.0.0", lld=False)
    lld = tmp_path / "b/lld"
    lld.parent.mkdir()
    script(lld, "")
    found = find_toolchain({"PATH": f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}"})
    assert found.local_flags == (f"-B{tmp_path / 'b'}",)
    assert found.lld == (str(lld), "-flavor", "gnu")


class TestEmbedded:
    """The compiler from the ziglang wheel."""

    @pytest.fixture
    def found(self, tmp_path: Path) -> Toolchain:
        pytest.importorskip("ziglang")
        return find_toolchain({"PATH": str(tmp_path)})

    def test_is_taken_when_path_has_none(self, found: Toolchain) -> None:
        """Without a clang on PATH the wheel is used, and says so."""
        if Path("/opt/rocm/llvm/bin/clang").exists():
            pytest.skip("this machine's ROCm goes before the wheel")
        assert found.origin.startswith("embedded: ziglang")
        assert "/" not in found.identity

    def test_compiles_and_links_without_home_or_path(self, tmp_path: Path) -> None:
        """A host program that includes <cstdio> compiles, links and runs on nothing else.

        It needs nothing of libc++, which would be built for it: examples in bare trees do.
        """
        pytest.importorskip("ziglang")
        found = find_toolchain({"PATH": "", "OFFLOAD_CLANG": "embedded"})
        source = tmp_path / "a.hip"
        source.write_text('#include <cstdio>\nint main() { std::puts("ran"); }\n')
        bare = {"PATH": "/nonexistent", **dict(found.environment)}
        flags = ["-x", "hip", "--offload-host-only", "-nogpuinc", "-nogpulib", "-c"]
        compile_it = [*found.clang, *found.local_flags, *flags, source, "-o", tmp_path / "a.o"]
        run_tool(*compile_it, env=bare)
        link = [*found.cxx, "-nostdlib++", tmp_path / "a.o", "-o", tmp_path / "a"]
        run_tool(*link, env=bare)
        ran = run_tool(tmp_path / "a")
        assert ran == "ran\n"

    def test_header_folders_are_absolute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They hold from everywhere, also where zig was asked from above them."""
        wheel = pytest.importorskip("ziglang")
        monkeypatch.chdir(Path(wheel.__file__).parents[1])
        flags = ziglang.probe_embedded.__wrapped__().local_flags
        folders = [folder for option, folder in pairwise(flags) if option == "-isystem"]
        assert folders
        assert all(Path(folder).is_absolute() for folder in folders)
