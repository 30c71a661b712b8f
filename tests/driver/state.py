"""What a checkout holds: its files, and the settings of its SConstruct. Pure data."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field

_VALUE = re.compile(r"(#define (?:F|OWN|N_)\w* )(\d+)")
_FLAG_VALUE = re.compile(r"(-D\w+=)(\d+)")
_LLD = """\
#!/bin/sh
case "$*" in *--version*) echo "LLD {0}.0.0 (compatible with GNU linkers)"; exit;; esac
exec $(../clang -print-prog-name=lld) "$@" --defsym=linked_by={0}
"""


@dataclass
class State:
    """A checkout's files and settings; changes make another one of it."""

    kind: str
    """``hip``, ``rdc``, ``openmp`` or ``cuda``."""
    layout: str
    """``plain``, ``variant0``, ``variant1`` (with copies) or ``repository``."""
    decider: str
    caches: bool
    archs: list[str]
    stems: list[str]
    """The sources, without suffix."""
    calls: list[str]
    """The builder calls, in which ``SOURCES`` stands for the list of sources."""
    files: dict[str, str] = field(default_factory=dict)
    """Content by name, relative to the checkout."""
    path: list[str] = field(default_factory=list)
    """``CPPPATH``."""
    flags: dict[str, list[str]] = field(default_factory=dict)
    """Words of ``CCFLAGS``, ``OFFLOAD_FLAGS``, ``OFFLOAD_HOST_FLAGS``."""
    arch_flags: dict[str, list[str]] = field(default_factory=dict)
    defines: dict[str, int] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    """Of ``env["ENV"]``."""
    words: list[str] = field(default_factory=list)
    """After the compiler, in ``OFFLOAD_CLANG``."""
    generated: list[tuple[str, str]] = field(default_factory=list)
    """Headers that the build copies: (target, source)."""
    links: dict[str, str] = field(default_factory=dict)
    """Symbolic links to files and folders, both relative to the checkout."""
    hard: dict[str, str] = field(default_factory=dict)
    """Hard links to files."""
    linker: int = 0
    """Which lld is used, a script before the compiler's; 0: the compiler's own."""
    compiler: str = "clang"
    """The name of its script, or the number of the library of one whose code is in a library."""
    launcher: bool = False
    """Compiles go through ccache; clean builds, which judge, have none."""
    old: bool = False
    """Files have one time, as of reproducible archives."""
    second: dict[str, int] | None = None
    """The defines of a second environment, which bundles the same sources elsewhere."""
    pch: bool = False
    """Builds have precompiled headers; clean builds, which judge, have none."""
    broken: bool = False
    """A source has an error, or lacks a header: the build cannot succeed."""

    def copy(self) -> State:
        return copy.deepcopy(self)

    @property
    def keeps_temporaries(self) -> bool:
        return "--save-temps" in self.flags.get("CCFLAGS", ())

    @property
    def suffix(self) -> str:
        return {"cuda": ".cu", "openmp": ".c"}.get(self.kind, ".hip")

    @property
    def base(self) -> str:
        """Where sources and path folders are, for files."""
        prefix = {"plain": "", "repository": "../repository/"}
        return prefix.get(self.layout, "src/")

    @property
    def sources(self) -> list[str]:
        return [stem + self.suffix for stem in self.stems]

    def source_file(self, source: str) -> str:
        """Name the file that a source's text is in: the build copies some from another one."""
        made = dict(self.generated)
        return self.base + made.get(source, source)

    def needed(self) -> set[str]:
        """Name the files without which nothing builds."""
        sources = {self.source_file(source) for source in self.sources}
        return sources | {self.base + text for _, text in self.generated}

    def names(self, compiler: str) -> set[str]:
        """Name all that is there before a build."""
        return {*self.all_files(compiler), *self.links, *self.hard}

    def target(self, name: str) -> str:
        """Name the file that a link leads to in the end."""
        while name in self.links or name in self.hard:
            name = self.real(self.links.get(name) or self.hard[name])
        return name

    def real(self, name: str) -> str:
        """Name a file or folder as it is called without links to folders."""
        folder = name
        while folder:
            if folder in self.links and (folder != name or "." not in name.rsplit("/", 1)[-1]):
                return self.real(self.links[folder] + name[len(folder) :])
            folder = folder.rpartition("/")[0]
        return name

    def all_files(self, compiler: str) -> dict[str, str]:
        """Return the content of all files by name, the SCons scripts among them."""
        head = _head(self, compiler)
        body = self._body()
        files = {**self.files, **({"tools/lld": _LLD.format(self.linker)} if self.linker else {})}
        if self.layout.startswith("variant"):
            copies = self.layout == "variant1"
            call = f"SConscript('src/SConscript', 'env', variant_dir='out', duplicate={copies})\n"
            return {**files, "SConstruct": head + call, "src/SConscript": "Import('env')\n" + body}
        return {**files, "SConstruct": head + body}

    def _body(self) -> str:
        lines = [f"env.Replace(CPPPATH={self.path!r})"]
        for target, source in self.generated:
            lines.append(f"env.Command({target!r}, {source!r}, Copy('$TARGET', '$SOURCE'))")
        lines += [call.replace("SOURCES", repr(self.sources)) for call in self.calls]
        if self.second is not None:
            lines.append("two = env.Clone()")
            lines.append(f"two.Append(CPPDEFINES={self.second!r})")
            lines += [f"two.OffloadBundle('two/{s}.hipfb', '{s}{self.suffix}')" for s in self.stems]
        return "\n".join(lines) + "\n"

    def with_new_value(self, name: str, number: int) -> State:
        """Return the state in which the first value in a file is `number`."""
        made = self.copy()
        text = self.files[name]
        for pattern in (_VALUE, _FLAG_VALUE):
            if pattern.search(text):
                made.files[name] = pattern.sub(rf"\g<1>{number}", text, count=1)
                return made
        made.files[name] = str(number % 10)  # of #embed: one byte
        return made

    def has_value(self, name: str) -> bool:
        text = self.files[name]
        return bool(_VALUE.search(text) or _FLAG_VALUE.search(text)) or name.endswith(".bin")


def _head(state: State, compiler: str) -> str:
    program = "HERE.llvm/bin/clang" if state.compiler.isdigit() else f"{compiler}{state.compiler}"
    command = " ".join([program, *state.words, *(["-Btools"] if state.linker else [])])
    lines = [
        "env = Environment(",
        '    tools=["default", "offload"],',
        '    toolpath=[PyPackageDir("offload_tool.scons")],',
        f"    OFFLOAD_CLANG={command!r}.replace('HERE', Dir('#').abspath),",
        f"    OFFLOAD_ARCH={state.archs!r},",
        *(f"    {name}={words!r}," for name, words in sorted(state.flags.items())),
        f"    OFFLOAD_ARCH_FLAGS={state.arch_flags!r},",
        f"    CPPDEFINES={state.defines!r},",
        '    OFFLOAD_PTXAS="none",',
        ")",
        f"env.Decider({state.decider!r})",
        f"env['ENV'].update({state.variables!r})",
    ]
    if state.launcher:
        lines += [
            "env['ENV'].update(HOME=Dir('#/..').abspath, CCACHE_DIR=Dir('#/../ccache').abspath,\n"
            "    CCACHE_SLOPPINESS='include_file_mtime,include_file_ctime')",
            "if not GetOption('cache_disable'):",
            "    env['OFFLOAD_LAUNCHER'] = WhereIs('ccache') or ''",
        ]
    if state.kind == "openmp":
        lines.append(
            "env.Replace(OFFLOAD_KIND='openmp', OFFLOAD_DEVICE_RUNTIME=[],\n"
            "            OFFLOAD_LINK_FLAGS=['--unresolved-symbols=ignore-all'])"
        )
    if state.kind == "rdc":
        lines.append("env.Replace(OFFLOAD_RDC=True)")
    if state.pch:
        lines.append("from offload_tool.scons import pch; pch.SMALLEST = pch.ALONE = 0")
        lines.append("env.Replace(OFFLOAD_PCH=ARGUMENTS.get('pch') == '1', OFFLOAD_SUMMARY=True)")
    if state.caches:
        lines.append("env.CacheDir('../cache')")
    if state.layout == "repository":
        lines.append("Repository('../repository')")
    return "\n".join(lines) + "\n"
