"""The libraries that OpenMP programs need on a machine that has no LLVM: a copy of this one's.

LLVM's library for offloading is linked with all of LLVM, which is linked with an SMT solver, a line
editor and an XML parser. Nothing that offloads calls these three, so that empty libraries with
their names and symbols take their places: 60 MB less.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

EMPTY = re.compile(r"lib(?:z3|edit|xml2)\.so\.\d+")
OF_THE_C_LIBRARY = re.compile(
    r"(?:ld-linux-x86-64|lib(?:c|m|dl|pthread|rt|util|resolv))\.so\.\d+|linux-vdso\.so\.\d+"
)


def needed_libraries(path: Path) -> dict[str, Path]:
    """Return the shared libraries that a file is loaded with, by name."""
    printed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    return {name: Path(where) for name, where in re.findall(r"(\S+) => (/\S+)", printed)}


def _symbols(path: Path, option: str) -> set[str]:
    """Return the names of dynamic symbols, with their versions: ``xmlFree@LIBXML2_2.4.30``."""
    printed = subprocess.run(["nm", "-D", option, path], capture_output=True, text=True, check=True)
    return {line.split()[-1].replace("@@", "@") for line in printed.stdout.splitlines()}


def pack_openmp_runtime(libraries: Path, output: Path) -> None:
    """Copy libomptarget, libomp and what they need to `output`, the C library to ``glibc`` there.

    :raises StopIteration: the folder has no libomptarget.
    """
    output.mkdir(parents=True)
    (output / "glibc").mkdir()
    target = next(libraries.glob("libomptarget.so.*")).resolve()
    shutil.copy2(target, output)
    all_needed = needed_libraries(target)
    for name, path in all_needed.items():
        if OF_THE_C_LIBRARY.fullmatch(name):
            shutil.copy2(path, output / "glibc" / name)
        elif EMPTY.fullmatch(name):
            users = [other for other in all_needed.values() if other != path]
            asked = set().union(*(_symbols(other, "--undefined-only") for other in users))
            write_empty_library(output / name, asked & _symbols(path, "--defined-only"))
    for name, path in _without(all_needed).items():
        shutil.copy2(path, output / name)
    (output / "libomp.so").symlink_to("libomp.so.5")  # by which libomptarget opens it
    _write_libcuda(output)
    loader = Path("/lib64/ld-linux-x86-64.so.2")
    for path in (loader, *(loader.resolve().parent / f"lib{n}.so.{v}" for n, v in _ALSO)):
        shutil.copy2(path, output / "glibc" / path.name)


def _write_libcuda(output: Path) -> None:
    """Write a library by which libomptarget opens the driver: it is libcuda.so.1 without an SDK."""
    driver = output / "libcuda.so.1"
    link = ["gcc", "-shared", "-nostdlib", "-Wl,--no-as-needed", "-o"]
    subprocess.run([*link, driver, "-Wl,-soname,libcuda.so.1", "-xc", "/dev/null"], check=True)
    subprocess.run([*link, output / "libcuda.so", driver], check=True)
    driver.unlink()


_ALSO = (("dl", 2), ("pthread", 0), ("rt", 1))
"""What NVIDIA's driver needs of the C library, and OpenMP's libraries do not."""


def _without(needed: dict[str, Path]) -> dict[str, Path]:
    """Return the libraries to copy: those that only what is empty needs are left out."""
    kept, todo = {}, ["libomp.so.5", "libstdc++.so.6", "libgcc_s.so.1"]
    todo += [name for name in needed if name.startswith("libLLVM")]
    while todo:
        name = todo.pop()
        if name in kept or EMPTY.fullmatch(name) or OF_THE_C_LIBRARY.fullmatch(name):
            continue
        kept[name] = needed[name]
        todo += [other for other in _directly_needed(needed[name]) if other in needed]
    return kept


def _directly_needed(path: Path) -> list[str]:
    printed = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True)
    return re.findall(r"NEEDED\s+(\S+)", printed.stdout)


def write_empty_library(path: Path, symbols: set[str]) -> None:
    """Write a library whose functions stop the program that calls them."""
    versions: dict[str, list[str]] = {}
    for name, _, version in (symbol.partition("@") for symbol in sorted(symbols)):
        versions.setdefault(version, []).append(name)
    source, script = path.with_suffix(".s"), path.with_suffix(".map")
    names = [name for names in versions.values() for name in names]
    lines = [f".globl {name}\n.type {name}, @function\n{name}: ud2\n" for name in names]
    source.write_text("".join([*lines, '.section .note.GNU-stack,"",@progbits\n']))
    args = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{path.name}", str(source)]
    if any(versions):
        parts = [f"{each} {{ global: {'; '.join(names)}; }};\n" for each, names in versions.items()]
        script.write_text("".join(parts))
        args.append(f"-Wl,--version-script={script}")
    subprocess.run([*args, "-o", str(path)], check=True)
    source.unlink()
    script.unlink(missing_ok=True)
