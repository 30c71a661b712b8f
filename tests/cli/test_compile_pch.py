"""``compile --emit-pch`` and ``--pch``: equal results, and a message if no PCH is used.

Each is compared with the same command without a precompiled header.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offload_tool.io.file_digests import CHANGED
from offload_tool.manifest import cut_off
from offload_tool.pch import pch, recipe
from offload_tool.toolchain.probe import Toolchain
from tests.cli.conftest import run
from tests.cli.test_compile_manifest import SETTLED
from tests.conftest import Capture
from tests.scripts import script

LAUNCH = """\
#pragma once
struct dim3 { unsigned x, y, z; };
extern "C" int hipLaunchKernel(const void*, dim3, dim3, void**, unsigned long, struct stream*);
extern "C" unsigned __hipPushCallConfiguration(dim3, dim3, unsigned long = 0, struct stream* = 0);
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
"""
# All kinds of definitions in a header: emitted on use, for each instance, or at once (not
# allowed for host passes).
HEADER = """\
#pragma once
#include <launch.h>
#if __has_include(<asked.h>)
enum { asked = 1 };
#else
enum { asked = 0 };
#endif
enum { counted = __COUNTER__ };
template <class T> __global__ void templated(T* p) { *p = 1; }
template <class T> __host__ __device__ T twice(T v) { return v + v; }
template <class T> struct S { static T m; virtual T f(); virtual ~S() {} };
template <class T> T S<T>::m = 3;
template <class T> T S<T>::f() { return m; }
extern template struct S<float>;
static __device__ int device_value = VALUE;
inline int defined(int x) { S<int> s; return twice(x) + s.f(); }
inline int counter = 4;
struct V { virtual ~V(); virtual int f() { return 3; } };
inline V* make() { return new V; }
struct Init { Init(); };
inline auto lambda = [](int x) { return twice(x); };
#ifdef __HIP_DEVICE_COMPILE__
__global__ void of_header(int* p) { *p = device_value + twice(1) + asked; }
double second(double x) { return twice(x) + twice(1.0f); }
static Init init;
namespace { int hidden() { return 2; } struct I { I() { hidden(); } } i; }
#endif
"""
BEGIN = "// text\n#include <launch.h>\n#include <header.h>\n"
SOURCE = """
#include "own.h"
__global__ void kernel(int* p) { *p = device_value + twice(2) + twice(2u) + OWN + __LINE__; }
int host(int x) {
  templated<char><<<dim3{1, 1, 1}, dim3{1, 1, 1}>>>(nullptr);
  return defined(counter) + make()->f() + lambda(4) + asked + __COUNTER__;
}
static Init own_init;
"""
FLAGS = ["--", "-nogpuinc", "-nogpulib", "-Ifirst", "-Isecond", "-DVALUE=3", "-O2"]
STALE = "the precompiled header is of other flags, or out of date: make it again"
SIDES = {"device": ["--target-id", "gfx90a"], "host": ["--host"]}


@pytest.fixture
def project(folder: Path) -> Path:
    """Return a folder with two sources that have the same beginning."""
    for name in ("first", "second"):
        Path(name).mkdir()
    Path("second/launch.h").write_text(LAUNCH)
    Path("second/header.h").write_text(HEADER)
    Path("own.h").write_text("#define OWN 1\n")
    Path("k.hip").write_text(BEGIN + SOURCE)
    Path("other.hip").write_text("/* more\n text */" + BEGIN + "\nint other() { return 2; }\n")
    return folder


def emit(side: str, *flags: str, source: str = "k.hip") -> int:
    args = ["compile", source, "-o", f"{side}.pch", *SIDES[side], "--emit-pch"]
    time.sleep(SETTLED)  # a header written in the clock step of the start counts as changed
    return run(*args, *(flags or FLAGS))


def compiled(side: str, *flags: str, source: str = "k.hip", use: str = "") -> dict[str, Any]:
    """Compile again; return the output, the depfile, and the manifest without times."""
    args = ["compile", source, "-o", "out", *SIDES[side], "--depfile", "out.d"]
    for name in ("out", "out.d", ".out.manifest"):
        Path(name).unlink(missing_ok=True)
    time.sleep(SETTLED)
    assert run(*args, *(["--pch", use] if use else []), *(flags or FLAGS)) == 0
    record = json.loads(Path(".out.manifest").read_text().partition("\n")[0])
    inputs = [*record["inputs"]]  # in order
    record.pop("bitcode")  # contains the time taken
    output, rule = Path("out").read_bytes(), Path("out.d").read_text()
    return {"output": output, "depfile": rule, "inputs in order": inputs, **record}


def uses(monkeypatch: pytest.MonkeyPatch, before: Callable[[], object] = bool) -> list[str]:
    """Return a list of the results of uses of a PCH from now on; `before` runs before each."""
    found: list[str] = []
    run_with = pch.UsablePch.run

    def noted(*args: Any) -> str:
        before()
        found.append(run_with(*args))
        return found[-1]

    monkeypatch.setattr(pch.UsablePch, "run", noted)
    return found


def assert_same(
    capfd: Capture, side: str, *flags: str, source: str = "k.hip", why: str = ""
) -> None:
    """Compare with the compile without; `why` is the message if the PCH is not used."""
    capfd.readouterr()
    expected = compiled(side, *flags, source=source)
    output = capfd.readouterr().err
    found = compiled(side, *flags, source=source, use=f"{side}.pch")
    assert found == expected
    reason = f"offload-tool compile: '{source}': '{side}.pch' is not used: {why}\n" if why else ""
    assert capfd.readouterr().err == reason + output


@pytest.mark.parametrize("side", SIDES)
def test_same_with_and_without(
    project: Path, capfd: Capture, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output, depfile and manifest have the same bytes, for each source and each flag."""
    for flag in ("-O2", "-Os", "-std=c++20", "-ffp-contract=off"):
        flags = [*FLAGS, flag]
        assert emit(side, *flags) == 0
        for source in ("k.hip", "other.hip"):
            assert_same(capfd, side, *flags, source=source)
    used = uses(monkeypatch)
    if side == "device":  # through the driver, no PCH would be used
        monkeypatch.setattr(pch, "run_quietly", lambda *_: (1, b""))
    compiled(side, *flags, use=f"{side}.pch")
    assert used == [""]  # the PCH was used


def test_changes_of_headers(project: Path, capfd: Capture) -> None:
    """No change of a header is missed, and an irrelevant change does not disable the PCH.

    Headers are edited, keeping size and time; touched; added earlier on the path; added where
    ``__has_include`` tests; removed. The PCH is not used until it is rebuilt.
    """
    assert emit("device") == 0
    header = Path("second/header.h")
    times = header.stat().st_atime_ns, header.stat().st_mtime_ns
    header.write_text(HEADER.replace("return v + v", "return v - v"))
    os.utime(header, ns=times)
    assert_same(capfd, "device", why=STALE)
    assert emit("device") == 0
    assert_same(capfd, "device")
    os.utime(header)
    assert_same(capfd, "device")
    for name, text in (("first/asked.h", ""), ("first/header.h", HEADER + "int x;\n")):
        Path(name).write_text(text)
        assert_same(capfd, "device", why=STALE)
        assert emit("device") == 0
        assert_same(capfd, "device")
    Path("first/header.h").unlink()
    assert_same(capfd, "device", why=STALE)


def test_names_that_the_backend_numbers(
    project: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass whose backend would number names otherwise in its own job runs in one, here too."""
    monkeypatch.setattr(cut_off, "_TOO_SHORT", 0)
    calls = "".join(f'printf("%d {word}", n); printf("{word}\\n"); ' for word in ("one", "two"))
    use = f'extern "C" int printf(const char*, ...);\nvoid say(int n) {{ {calls} }}\n'
    assert emit("host") == 0
    for number in range(3):
        Path("k.hip").write_text(f"{BEGIN}// {number}\n{SOURCE}{use}")
        assert run("compile", "k.hip", "-o", "out.o", "--host", "--pch", "host.pch", *FLAGS) == 0
        compiled("host")
        assert Path("out.o").read_bytes() == Path("out").read_bytes()


def test_header_that_changes_while_it_compiles(
    project: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header saved after the check of the PCH is detected: clang rejects the PCH."""
    assert emit("device") == 0
    changed = HEADER.replace("return v + v", "return v - v")
    used = uses(monkeypatch, lambda: Path("second/header.h").write_text(changed))
    found = compiled("device", use="device.pch")
    assert used == [pch.MESSAGES]
    assert found["inputs"]["second/header.h"] == CHANGED
    assert found["output"] == compiled("device")["output"]


def test_flags_that_may_not(project: Path, capfd: Capture) -> None:
    """A compile without a PCH reports the reason, both for --emit-pch and for --pch."""
    level = "no optimization (-O0): add -O1 or more"
    for flag, why in (("-g", "debug information (-g)"), ("-O0", level)):
        assert emit("device", *FLAGS, flag) == 0
        expected = f"offload-tool compile: 'device.pch': no precompiled header: {why}\n"
        assert capfd.readouterr().err == expected
        assert_same(capfd, "device", *FLAGS, flag, why=why)


def test_pch_of_something_else(project: Path, capfd: Capture) -> None:
    """A PCH of other flags, target or leading includes is not used; nor is a missing one.

    Clang itself would accept it if only a macro of a library differed.
    """
    assert emit("device") == 0
    assert_same(capfd, "device", *FLAGS, "-D_GLIBCXX_ASSERTIONS", why=STALE)
    Path("one.hip").write_text("#include <launch.h>\n" + SOURCE.replace("OWN", "X"))
    Path("first.hip").write_text("int first;\n" + BEGIN + SOURCE)
    different = (
        "different leading includes: it must begin with those of the precompiled header, "
        "'first.hip:1' is where they end"
    )
    assert_same(capfd, "device", source="first.hip", why=different)
    Path("device.pch").rename("host.pch")
    for name in (".includes", ".manifest"):
        Path(f".device.pch{name}").rename(f".host.pch{name}")
    assert_same(capfd, "host", why=STALE)
    assert_same(capfd, "device", why="no precompiled header is there: make it first")


def test_damaged_pch(project: Path, capfd: Capture) -> None:
    """A truncated or foreign file instead of the PCH is not used."""
    assert emit("device") == 0
    content = Path("device.pch").read_bytes()
    for damaged in (content[:-100], b"", b"CPCH", content[:100] + b"x" + content[101:]):
        Path("device.pch").write_bytes(damaged)
        assert_same(capfd, "device", why=STALE)


def test_messages(project: Path, capfd: Capture) -> None:
    """Warnings are the same as without: those of a header, and those of a source."""
    flags = [*FLAGS, "-Wall"]
    assert emit("device", *flags) == 0
    Path("k.hip").write_text(BEGIN + SOURCE + "static int unused() { return 1; }\n")
    assert_same(capfd, "device", *flags)
    compiled("device", *flags, use="device.pch")
    assert "unused" in capfd.readouterr().err
    header = Path("second/header.h")
    header.write_text(HEADER.replace("#pragma once", "#pragma once\n#warning told"))
    capfd.readouterr()
    assert emit("device", *flags) == 0
    why = "messages of the compiler about its headers: mend or disable them"
    assert capfd.readouterr().err.endswith(f"no precompiled header: {why}\n")
    assert_same(capfd, "device", *flags, why=why)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("namespace { struct A { A(); } a; } int f() { return 3; }", "_Z1fv"),
        ("__global__ void kernel_of_header() {}", "_Z16kernel_of_headerv"),
        ("int global = 5;", "global"),
    ],
)
def test_what_headers_emit(text: str, name: str, project: Path, capfd: Capture) -> None:
    """Definitions in each host object, which a PCH would move, prevent it; device code does not."""
    Path("second/header.h").write_text(f"{HEADER}{text}\n")
    for side in SIDES:
        why = f"its headers define '{name}' in each source" if side == "host" else ""
        assert emit(side) == 0
        message = (
            f"offload-tool compile: '{side}.pch': no precompiled header: {why}\n" if why else ""
        )
        assert capfd.readouterr().err == message
        assert_same(capfd, side, why=why)


def test_errors(project: Path, capfd: Capture) -> None:
    """For a header that does not compile, the compiler reports the error; for usage, we do."""
    Path("second/header.h").write_text("#error wrong\n")
    assert emit("device") == 1
    assert "wrong" in capfd.readouterr().err
    assert not Path("device.pch").exists()
    Path("plain.hip").write_text("int x;\n")
    assert emit("device", source="plain.hip") == 2
    assert "expected lines '#include <...>'" in capfd.readouterr().err
    args = ["compile", "k.hip", "-o", "x", *SIDES["device"], "--emit-pch", "--pch", "x", *FLAGS]
    assert run(*args) == 2


def test_current_pch_is_not_made_again(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current PCH stays, whatever else changed in its source."""
    assert emit("device") == 0
    before = Path("device.pch").stat()
    time.sleep(SETTLED)
    Path("k.hip").write_text(BEGIN + "int other;\n")
    monkeypatch.setattr(pch, "run_quietly", lambda *_: pytest.fail("it is made again"))
    assert emit("device") == 0
    assert Path("device.pch").stat() == before


def test_depfile_of_pch(project: Path) -> None:
    args = ["compile", "k.hip", "-o", "device.pch", *SIDES["device"], "--emit-pch"]
    assert run(*args, "--depfile", "device.d", *FLAGS) == 0
    text = Path("device.d").read_text()
    assert text.startswith("device.pch:")
    assert all(f" {name} \\\n" in text for name in ("k.hip", "second/header.h", "second/launch.h"))


def test_launcher(
    project: Path, compiler: Toolchain, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launcher gets the plain command of a compiler of the same name."""
    log = project.parent / "log"
    count = script(project.parent / "count", f'echo "$*" >>"{log}"\nexec "$@"')
    assert emit("device") == 0
    monkeypatch.setenv("OFFLOAD_LAUNCHER", count)
    assert_same(capfd, "device")
    plain, accelerated = (line.split() for line in log.read_text().splitlines())
    *_, name = compiler.clang  # of the embedded one: zig, clang
    args = plain[len(compiler.clang) :]
    assert args == accelerated[1:]
    assert Path(name).name == Path(accelerated[0]).name
    monkeypatch.delenv("OFFLOAD_LAUNCHER")
    monkeypatch.setenv("OFFLOAD_DIST", "none")
    assert run("compile", "k.hip", "-o", "out", "--host", "--pch", "device.pch", *FLAGS) == 0
    expected = "offload-tool compile: 'k.hip': 'device.pch' is not used: OFFLOAD_DIST is set\n"
    assert capfd.readouterr().err == expected


def rebuilt(capfd: Capture, side: str, header: str, why: str, *flags: str) -> None:
    """Compile with such a header, with a PCH and without; `why` is the expected message."""
    Path("second/header.h").write_text(f"{HEADER}{header}\n")
    capfd.readouterr()
    assert emit(side, *flags) == 0
    output = capfd.readouterr().err
    assert output.endswith(f"no precompiled header: {why}\n" if why else ""), output
    assert_same(capfd, side, *flags, why=why)


def test_device_variable_of_host_code(project: Path, capfd: Capture) -> None:
    """A PCH that would lose a device variable used by host code is rejected, by its symbol."""
    header = "inline void use(const void*) {}\nstatic __device__ int lost;\n"
    header += "inline void up() { use(&lost); }"
    why = "a probe compiles to other bytes with it: symbol '_ZL4lost' is there only without"
    rebuilt(capfd, "device", header, why)
    rebuilt(capfd, "host", header, "")


NAMES = """
template <class T> __device__ __host__ const char* file(T) { return __builtin_FILE(); }
template <class T> __device__ __host__ const char* pretty(T) { return __PRETTY_FUNCTION__; }
inline __device__ __host__ const char* of_lambda() { return pretty([](int x) { return x; }); }
"""
USER = """
__device__ const char* names[2];
__global__ void name() { names[0] = file(1); names[1] = of_lambda(); }
const char* host_file() { return file(1); }
const char* host_pretty() { return of_lambda(); }
"""


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("spelled", ["second", "./second", "first/../second", "second/."])
def test_names_of_headers(side: str, spelled: str, project: Path, capfd: Capture) -> None:
    """Headers keep the names by which they were found, and get no absolute ones."""
    Path("k.hip").write_text(BEGIN + SOURCE + USER)
    flags = [flag.replace("-Isecond", f"-I{spelled}") for flag in FLAGS]
    rebuilt(capfd, side, NAMES, "", *flags)
    compiled(side, *flags, use=f"{side}.pch")
    assert str(project).encode() not in Path("out").read_bytes()
    assert f"{spelled}/header.h".encode() in Path("out").read_bytes()


def test_names_that_differ(project: Path, capfd: Capture) -> None:
    """A folder with two spellings allows no PCH."""
    Path("k.hip").write_text(BEGIN + SOURCE + USER)
    Path("second/more.h").write_text("#pragma once\n")
    two = "the folder of '{}' is spelled in two ways"
    rebuilt(capfd, "device", NAMES + '#include "./more.h"', two.format("second/./more.h"))
    rebuilt(
        capfd,
        "device",
        NAMES + f'#include "{project}/second/more.h"',
        two.format(f"{project}/second/more.h"),
    )


def test_names_that_are_not_understood(
    project: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the compiler uses unexpected file names, there is no PCH."""
    monkeypatch.setattr(recipe.PchRecipe, "folder", "/other")
    rebuilt(capfd, "device", "", "'second/launch.h' has another name in it")


def test_absolute_names_of_the_source(project: Path, capfd: Capture) -> None:
    """A file that the source includes by an absolute name keeps it: the PCH is not used for it."""
    Path("second/more.h").write_text("inline const char* more() { return __FILE__; }\n")
    text = f'{BEGIN}{SOURCE}#include "{project}/second/more.h"\nauto use_more = more;\n'
    Path("k.hip").write_text(text)
    assert emit("host") == 0
    name = f"{project}/second/more.h"
    why = f"'{name}' is absolute, in a folder that a precompiled header has as relative"
    assert_same(capfd, "host", why=why)


@pytest.mark.parametrize("side", SIDES)
def test_state_that_a_probe_shows(
    side: str, project: Path, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State that clang loses, and no rule covers, is detected by compiling a probe."""
    monkeypatch.setattr(pch, "reason_of_headers", lambda *_: "")
    Path("second/header.h").write_text(f"{HEADER}#pragma clang fp eval_method(double)\n")
    assert emit(side) == 0
    assert "a probe compiles to other bytes with it" in capfd.readouterr().err
