"""Random changes of the files that words name, or that the compiler finds without a word.

Profiles, bitcode to link, and clang's default configuration files, beside what `cached` changes.
``python -m tests.launch.cached_named [SEED...]`` runs one trial for each seed, with 40 changes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.launch.cached import Trial, main

PROFILED = """void one(); void two();
void profiled(int a) { if (a > 3) one(); else two(); }
"""
SOURCE = f"""#include "s.hip.in"
{PROFILED}
#ifdef LIBRARY
extern "C" __attribute__((device, host)) int from_library(int);
__global__ void uses(int *x) {{ *x = from_library(*x); }}
int uses_too(int x) {{ return from_library(x); }}
#endif
#ifdef CONFIGURED
__global__ void configured(int *x) {{ *x = CONFIGURED; }}
int configured_too = CONFIGURED;
#endif
"""
PROFILE = ("-fprofile-use=p.profdata", "-fprofile-instr-use=p.profdata", "-fprofile-use=profiles")


class Named(Trial):
    """A project whose words name such files, and change."""

    def __init__(self, folder: Path, clang: str, seed: int) -> None:
        super().__init__(folder, clang, seed)
        self.profile: list[str] = []
        self.library: list[str] = []
        self.bin = Path(shutil.which(clang) or clang).resolve().parent
        self.tree = folder / "tree"
        """An installation of links, with configuration files beside its programs."""
        (self.tree / "bin").mkdir(parents=True)
        for program in self.bin.iterdir():
            (self.tree / "bin" / program.name).symlink_to(program)
        (self.tree / "lib").symlink_to(self.bin.parent / "lib")
        (self.folder / "s.hip").rename(self.folder / "s.hip.in")
        super().write("s.hip", SOURCE)
        self.function = self.hash_of_profiled()
        (self.folder / "profiles").mkdir()
        self.change_profile(1)
        self.change_library(1)

    def write(self, name: str, text: str) -> None:
        super().write("s.hip.in" if name == "s.hip" and hasattr(self, "function") else name, text)

    def words(self) -> list[str]:
        own = [*self.profile, *self.library, "-O1" if self.profile else "-O0"]
        first, *rest = super().words()
        if self.clang.startswith("/"):
            own.append("-no-canonical-prefixes")
        return [first, *own, *rest]

    def change(self) -> str:
        own = [name for name in vars(Named) if name.startswith("change_")]
        if self.random.random() < 0.3:
            return super().change()
        name = self.random.choice(own)
        getattr(self, name)(self.random.randrange(10))
        return name

    def made(self, name: str, program: str, *words: str | Path) -> None:
        """Let a program of LLVM's make a file; half of the time with the times that it had."""
        path = self.folder / name
        before = path.stat() if path.exists() else None
        subprocess.run([self.bin / program, *words, "-o", path], check=True, cwd=self.folder)
        if before is not None and self.random.random() < 0.5:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def hash_of_profiled(self) -> str:
        words = [self.bin / "clang++", "-xc++", "-fprofile-instr-generate", "-S", "-emit-llvm"]
        done = subprocess.run(
            [*words, "-", "-o", "-"], input=PROFILED, text=True, capture_output=True, check=True
        )
        found = re.search(r"@__profd__Z8profiledi = .*?i64 -?\d+, i64 (\d+)", done.stdout)
        assert found is not None
        return found[1]

    def change_profile(self, digit: int) -> None:
        text = f"_Z8profiledi\n{self.function}\n2\n100\n{digit * 11}\n"
        (self.folder / "profile").write_text(text)
        name = self.random.choice(["p.profdata", "profiles/default.profdata"])
        for one in [name] if digit != 1 else ["p.profdata", "profiles/default.profdata"]:
            self.made(one, "llvm-profdata", "merge", "profile")

    def change_profile_use(self, digit: int) -> None:
        self.profile = [self.random.choice(PROFILE)] if digit else []

    def change_library(self, digit: int) -> None:
        text = f"define i32 @from_library(i32 %x) {{\n ret i32 {digit}\n}}\n"
        (self.folder / "library.ll").write_text(text)
        self.made("library.bc", "llvm-as", "library.ll")

    def change_library_use(self, digit: int) -> None:
        option = ["-DLIBRARY", "-Xclang", "-mlink-builtin-bitcode", "-Xclang", "library.bc"]
        self.library = option if digit % 3 else []

    def change_configuration(self, digit: int) -> None:
        """Change one of the files that clang reads without a word, or remove it."""
        name = self.random.choice(["clang++.cfg", "x86_64-pc-linux-gnu-clang++.cfg", "more.cfg"])
        path = self.tree / "bin" / name
        if digit < 2 and name != "more.cfg":
            path.unlink(missing_ok=True)
            return
        lines = ["@more.cfg", f"-DCONFIGURED={digit}", "-include named.h", "-Xarch_device -O1"]
        if name == "more.cfg":
            lines = [f"-DIN_MORE={digit}", f"-UCONFIGURED -DCONFIGURED={digit}"]
        path.write_text("\n".join(self.random.sample(lines, 2)))
        (self.tree / "bin/more.cfg").touch()

    def change_installation(self, digit: int) -> None:
        """Take the compiler of the links, or the usual one."""
        self.clang = str(self.tree / "bin/clang++") if digit % 3 else str(self.bin / "clang++")


if __name__ == "__main__":
    main(sys.argv[1:], Named)
