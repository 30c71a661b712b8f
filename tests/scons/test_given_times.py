"""Times, and SCons's deciders: what changed is seen, and what is left untouched stays.

Files of another release may have the time of the one before: reproducible archives have one time.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.conftest import found_toolchain
from tests.scons.conftest import KERNEL, RUNTIME, Project, empty_project
from tests.scons.relocatable import one, two

LONG_AGO = 315_532_800
"""The first second of 1980, of reproducible archives."""
ENTRY = "hipv4-amdgcn-amd-amdhsa--gfx906"
SETTINGS = "env['OFFLOAD_ARCH'] = ['gfx906']\n"
RELEASE = f"""{SETTINGS}
code = env.OffloadDeviceObject('given', 'code.hip')
env.OffloadBundle('given', code)
env.OffloadPackage('given', code)
env.OffloadArchive('given', 'two.hip', OFFLOAD_RDC=True)
env.OffloadStaticLibrary('plain', ['plain.c'])
"""
FROM_RELEASE = ("given.gfx906.co", "given.hipfb", "given.offload", "libgiven.a", "libplain.a")

BUILDERS = {
    "OffloadBundle": (
        f"env.OffloadBundle('b', 'given.gfx906.co', OFFLOAD_TARGETS={ENTRY!r})",
        "b.hipfb",
    ),
    "OffloadPackage": (
        f"env.OffloadPackage('p', 'given.gfx906.co', OFFLOAD_TARGETS={ENTRY!r})",
        "p.offload",
    ),
    "OffloadUnbundle": ("env.OffloadUnbundle('u', 'given.hipfb')", "u.gfx906.co"),
    "OffloadExtract": ("env.OffloadExtract('e', 'given.offload')", "e.gfx906.co"),
    "OffloadWrapper": ("env.OffloadWrapper('w.o', 'given.hipfb')", "w.o"),
    "OffloadDeviceArchive": ("env.OffloadDeviceArchive('d', 'libgiven.a')", "d.gfx906.a"),
    "OFFLOAD_LIBS": (
        "env.OffloadProgram('libs', ['one.hip', 'main.c', 'runtime.c'], OFFLOAD_RDC=True,\n"
        "    OFFLOAD_LIBS=['libgiven.a'])",
        "libs",
    ),
    "an archive among the sources": (
        "env.OffloadProgram('among', ['one.hip', 'main.c', 'runtime.c', 'libgiven.a'],\n"
        "    OFFLOAD_RDC=True)",
        "among",
    ),
    "LIBS": (
        "env.OffloadProgram('linked', ['k.hip', 'main.c', 'runtime.c'], LIBS=['plain'],\n"
        "    LIBPATH=['.'])",
        "linked",
    ),
    "OffloadDeviceObject": ("env.OffloadDeviceObject('k.hip')", "k.gfx906.co"),
    "OffloadHostObject": ("env.OffloadHostObject('k.hip')", "k.host.o"),
    "OffloadSharedLibrary": ("env.OffloadSharedLibrary('s', ['k.hip', 'plain.c'])", "libs.so"),
    "OffloadStaticLibrary": ("env.OffloadStaticLibrary('a', ['plain.c'])", "liba.a"),
    "OffloadKpack": (
        "env.OffloadKpack(env.OffloadSharedLibrary('kp', 'k.hip', OFFLOAD_KPACK='group'))",
        ".kpack/group_gfx906.kpack",
    ),
    "OffloadReport": ("env.OffloadReport('r.html', 'given.hipfb')", "r.html"),
}
DECIDERS = ("content-timestamp", "timestamp-match", "timestamp-newer")


def release(folder: Path, number: int) -> dict[str, bytes]:
    """Build what a release of this number consists of."""
    text = "x" * 50 * number  # releases differ in size
    made = empty_project(folder)
    made.write("code.hip", KERNEL.replace("VALUE", f"{number}") + f"// {text}\n" + longer(number))
    made.write("two.hip", f"#define FACTOR {number}\n" + two("hip") + longer(number))
    made.write("plain.c", f'const char* plain(void) {{ return "{text}"; }}\n')
    made.sconstruct(RELEASE).build()
    found = {name: (folder / name).read_bytes() for name in FROM_RELEASE}
    found["k.h"] = f"#define HERE {number} // {text}\n".encode()
    found["k.hip"] = f'// {text}\n#include "k.h"\n'.encode()
    found["k.hip"] += KERNEL.replace("VALUE", f"HERE + {number}").encode()
    found["plain.c"] = f'const char* plain(void) {{ return "{text}"; }}\n'.encode()
    found["main.c"] = f"int main(void) {{ return {number}; }} // {text}\n".encode()
    found["one.hip"] = one("hip").encode()
    found["runtime.c"] = RUNTIME.encode()
    return found


def longer(number: int) -> str:
    kernels = (f"__attribute__((global)) void more{i}(int* p) {{}}\n" for i in range(number * 40))
    return "".join(kernels)


def put(project: Project, files: dict[str, bytes]) -> None:
    """Unpack files, all with one time."""
    for name, data in files.items():
        path = project.folder / name
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        os.utime(path, (LONG_AGO, LONG_AGO))


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    found_toolchain()
    folder = tmp_path_factory.mktemp("releases")
    return [release(folder / f"{number}", number) for number in (1, 2)]


@pytest.fixture(scope="module")
def updated(
    releases: list[dict[str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Return the folders of a build that took the other release, and of a clean one of that."""
    folder = tmp_path_factory.mktemp("updated")
    built, clean = (empty_project(folder / name) for name in ("built", "clean"))
    cache = f"env.CacheDir({str(folder / 'cache')!r})\n"
    nodes = "\n".join(call for call, _ in BUILDERS.values())
    built.sconstruct(SETTINGS + cache + nodes)
    clean.sconstruct(SETTINGS + nodes)
    put(built, releases[0])
    built.build_once()
    put(built, releases[1])
    built.build_once()
    put(clean, releases[1])
    clean.build()
    return built.folder, clean.folder


@pytest.mark.parametrize("builder", BUILDERS)
def test_another_release_with_the_same_time(updated: tuple[Path, Path], builder: str) -> None:
    """What is made of given files follows another release of them that has the time of the last."""
    built, clean = (folder / BUILDERS[builder][1] for folder in updated)
    assert built.read_bytes() == clean.read_bytes()


@pytest.mark.parametrize("decider", DECIDERS)
def test_deciders_by_time(project: Project, decider: str) -> None:
    """A Decider that goes by time does not hide another release from what SCons's builders make."""
    project.sconstruct(
        f"env.Decider({decider!r})\nenv.OffloadStaticLibrary('a', ['plain.c'])\n"
        f"env.OffloadBundle('b', 'given.co', OFFLOAD_TARGETS={ENTRY!r})\n"
    )
    for number in (1, 2):
        text = f'const char* plain(void) {{ return "{"x" * number}"; }}\n'
        put(project, {"plain.c": text.encode(), "given.co": text.encode()})
        assert {"BUNDLE b.hipfb", "-> plain.o"} <= set(project.run().actions)
        project.assert_up_to_date()


def test_same_size_by_another_link(project: Project, tmp_path: Path) -> None:
    """A link that leads to another release is followed, where even the sizes are equal."""
    for name in ("one", "two"):
        given = tmp_path / name / "given.co"
        given.parent.mkdir()
        given.write_bytes(name.encode())
        os.utime(given, (LONG_AGO, LONG_AGO))
    link = project.folder / "release"
    link.symlink_to(tmp_path / "one")
    project.sconstruct(
        f"env.OffloadBundle('b', 'release/given.co', OFFLOAD_TARGETS={ENTRY!r},\n"
        "    OFFLOAD_BUNDLE_ALIGN=1)\n"
    ).build_once()
    link.unlink()
    link.symlink_to(tmp_path / "two")
    project.build()
    assert project.read("b.hipfb").endswith(b"two")


def test_unchanged_files_are_not_read(project: Project) -> None:
    """An old file that nobody has changed is not read again to find that all is up to date."""
    given = project.write("given.co", "x")
    os.utime(given, (LONG_AGO, LONG_AGO))
    project.sconstruct(
        "import SCons.Node.FS as fs\n"
        "def read(self, plain=fs.File.get_contents):\n"
        "    print('reads', self.name)\n"
        "    return plain(self)\n"
        "fs.File.get_contents = read\n"
        f"env.OffloadBundle('b', 'given.co', OFFLOAD_TARGETS={ENTRY!r})\n"
    )
    assert "reads given.co" in project.run().output
    assert "reads given.co" not in project.run().output
    shutil.copy2(given, given.with_name("copy"))
    given.with_name("copy").replace(given)
    assert "reads given.co" in project.run().output
    assert "reads given.co" not in project.run().output


def test_scons_alone_reads_what_is_stored(project: Project) -> None:
    """The stat() is stored beside SCons's own information: neither build misses the other's."""
    project.write("plain.c", "int plain(void) { return 0; }\n")
    alone = "Environment().Object('plain.o', 'plain.c')\n"
    project.sconstruct(alone, head="").build_once()
    project.sconstruct(f"{alone}env.OffloadStaticLibrary('a', ['plain.c', 'plain.o'])\n")
    run = project.done()
    assert "ARCHIVE liba.a" in run.actions
    assert "-> plain.o" not in run.actions
    project.assert_up_to_date()
    run = project.sconstruct(alone, head="").done("plain.o")
    assert run.up_to_date
    assert run.errors == ""


ALL_DECIDERS = ["content", "content-timestamp", "timestamp-match", "timestamp-newer"]


@pytest.mark.parametrize(
    ("use", "decider"),
    [("SharedLibrary", "timestamp-newer"), *(("Program", decider) for decider in ALL_DECIDERS)],
)
def test_builds_in_one_second(project: Project, use: str, decider: str) -> None:
    """A link follows device code that was made in the second of the link before it.

    SCons compares times in whole seconds: a Decider that goes by them sees nothing.
    """
    project.write("main.hip", KERNEL.replace("VALUE", "1"))
    now = int(time.time())
    project.sconstruct(
        "import os\ndef at_once(target, source, env):\n"
        f"    os.utime(str(target[0]), ({now}, {now}))\n"
        f"env.Decider({decider!r})\n"
        f"made = env.Offload{use}('prog', ['main.hip', 'runtime.c'])\n"
        "for node in [*made, *made[0].sources]:\n"
        "    env.AddPostAction(node, Action(at_once, None))\n"
    ).build()
    (linked,) = [p for p in project.folder.iterdir() if p.name in ("prog", "libprog.so")]
    before = linked.read_bytes()
    project.write("main.hip", KERNEL.replace("VALUE", "2"))
    project.build()
    assert linked.read_bytes() != before
    project.assert_up_to_date()


READS = """
from SCons.Node.FS import File
plain = File.get_contents
def logged(node):
    with open('read', 'a') as file:
        file.write(f'{node}\\n')
    return plain(node)
File.get_contents = logged
"""


@pytest.mark.parametrize(("arguments", "is_read"), [([], False), (["--max-drift=-1"], True)])
def test_new_outputs(arguments: list[str], is_read: bool, project: Project) -> None:
    """An unchanged output is read at most in the build after its own, and then only by request.

    SCons itself reads each in each build of the next two days.
    """
    outputs = {"k.gfx906.co", "k.hipfb"}
    project.sconstruct(f"{SETTINGS}env.OffloadBundle('k.hip')\n{READS}").build()
    read = project.folder / "read"
    time.sleep(0.1)
    project.build(*arguments)  # this may read them: they were too new
    read.unlink()
    project.build(*arguments)
    assert (not outputs.isdisjoint(read.read_text().splitlines())) == is_read
    (project.folder / "k.hipfb").write_bytes(b"damaged")
    project.build(*arguments)
    assert project.read("k.hipfb") != b"damaged"
