"""With each of SCons's deciders, an output that is left untouched is not made again for ever."""

from __future__ import annotations

import os
import time

import pytest

from tests.scons.conftest import KERNEL, Project, passes

DECIDERS = ["content", "content-timestamp", "timestamp-match", "timestamp-newer"]
ALONE = "rdc.OffloadDeviceArchive('extracted', library)\n"
LINKED = "rdc.OffloadProgram('prog', ['main.hip', 'runtime.c', library])\n"


@pytest.mark.parametrize(
    ("use", "decider"), [(ALONE, "content"), *((LINKED, decider) for decider in DECIDERS)]
)
def test_device_archives_after_a_host_edit(project: Project, use: str, decider: str) -> None:
    """After an edit that only the host reads, one build brings all up to date."""
    host = project.write("host.h", "#define HOST 1\n")
    project.write("main.hip", KERNEL.replace("VALUE", "1"))
    project.write(
        "k.hip",
        "#if !defined(__HIP_DEVICE_COMPILE__)\n"
        '#include "host.h"\nint only_here() { return HOST; }\n#endif\n'
        "__attribute__((device)) int twice(int x) { return 2 * x; }\n",
    )
    project.sconstruct(
        f"rdc = env.Clone(OFFLOAD_RDC=True)\nrdc.Decider({decider!r})\n"
        "library = rdc.OffloadArchive('device', 'k.hip')\n" + use
    ).build_once()
    later = time.time() + 2
    host.write_text("#define HOST 2\n")
    if decider != "timestamp-newer":
        os.utime(host, (later, later))
    assert project.build_once() == passes("k.hip", "host")


@pytest.mark.parametrize(
    ("use", "decider"),
    [("SharedLibrary", "timestamp-newer"), *(("Program", decider) for decider in DECIDERS)],
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
