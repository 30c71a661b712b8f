"""Checks of SCons's Configure contexts in an environment with this tool."""

from __future__ import annotations

from tests.scons.conftest import KERNEL, RUNTIME, Project

CHECKS = """\
conf = Configure(env)
found = [
    conf.TryCompile(KERNEL, ".hip"),
    conf.TryBuild(env.OffloadObject, KERNEL, ".hip"),
    conf.TryLink(KERNEL + RUNTIME, ".hip"),
    conf.TryCompile("#ifndef __clang__\\n#error\\n#endif\\n", ".c"),
    conf.CheckCXXHeader("own.h"),
    conf.CheckFunc("printf"),
    conf.CheckCXX(),
    conf.TryRun("int main() { return 0; }", ".cpp")[0],
]
missing = [
    conf.TryCompile(KERNEL + "no C++", ".hip"),
    conf.CheckCXXHeader("missing.h"),
]
env = conf.Finish()
cuda = Configure(env.Clone(OFFLOAD_ARCH="sm_80"))
CUDA = "__attribute__((device)) int twice(int x) { return x * 2; }"
found.append(cuda.TryCompile(CUDA, ".cu"))
missing.append(cuda.TryCompile(CUDA.replace("x *", "y *"), ".cu"))
cuda.Finish()
print("found", *(int(bool(each)) for each in found + missing))
"""


def test_checks(project: Project) -> None:
    """Checks compile device code, and all else with the compiler of the environment."""
    project.write("own/own.h", "#ifndef __clang__\n#error\n#endif\n")
    launch = "int hipLaunchKernel("
    own = f"{launch}const void*, dim3, dim3, void**, unsigned long, struct stream*"
    runtime = RUNTIME.replace(launch, own).replace("{ puts(name); }", "{}")
    runtime = 'extern "C" {\n' + runtime + "}\n"
    head = f"KERNEL = {KERNEL.replace('VALUE', '1')!r}\nRUNTIME = {runtime!r}\n"
    flags = "env.Replace(CPPPATH='own', CCFLAGS='-O1 -Wno-unused-command-line-argument')\n"
    cuda = "env['OFFLOAD_FLAGS'] = '-nogpuinc -nogpulib -nocudainc -nocudalib'\n"
    project.sconstruct(head + flags + cuda + CHECKS + "env.OffloadBundle('k.hip')\n")
    for arguments in ([], [], ["-c"]):
        assert "found 1 1 1 1 1 1 1 1 1 0 0 0\n" in project.done(*arguments).output
