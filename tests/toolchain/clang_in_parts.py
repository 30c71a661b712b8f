"""A compiler whose code is in a shared library, as in distributions: small enough for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

_PROGRAM = """\
#include <unistd.h>
extern char *flag(void);
int main(int number, char **words) {
  char *given[number + 2];
  given[0] = CLANG;
  given[1] = flag();
  for (int at = 1; at <= number; ++at)
    given[at + 1] = words[at];
  return execv(CLANG, given);
}
"""


def clang_in_parts(folder: Path, clang: str, value: int) -> Path:
    """Make ``bin/clang``, whose library is in ``lib``; it is looked for in ``first`` first."""
    program = folder / "bin/clang"
    program.parent.mkdir(parents=True)
    write_library(folder / "lib", clang, value)
    source = folder / "clang.c"
    source.write_text(_PROGRAM)
    found = [f"-Wl,-rpath,$ORIGIN/../{name}" for name in ("first", "lib")]
    args = [f'-DCLANG="{clang}"', str(source), *found, f"-L{folder}/lib", "-lcode"]
    subprocess.run([clang, *args, "-o", str(program)], check=True)
    return program


def write_library(folder: Path, clang: str, value: int) -> Path:
    """Write the library, which makes the compiler define ``HERE``, in the place of another one."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "code.c"
    source.write_text(f'char *flag(void) {{ return "-DHERE={value}"; }}\n')
    made, library = folder / "new.so", folder / "libcode.so"
    subprocess.run([clang, "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    made.replace(library)
    return library
