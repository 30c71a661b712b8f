"""What a command with one output is made of, for `offload-tool compile`.

It is for build tools that run one command per output, and compare times. Their "changed" inputs may
have the old content (a touched file, a branch that was switched twice), and the output may be
damaged. Some commands never are current: see `CommandResolver.is_recordable`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from offload_tool.clang.argument_files import (
    all_args,
    options_of,
    possible_files,
    unlisted_by_linker,
)
from offload_tool.clang.environment import ImplicitInputs
from offload_tool.clang.options import DEPFILE, ELSEWHERE, LIBRARY, LINKER, SIBLING, WRITES, does
from offload_tool.formats.magic import THIN_ARCHIVE
from offload_tool.io.file_digests import DigestCache, content_of
from offload_tool.manifest.inputs import general_args
from offload_tool.manifest.key import Key, key_of_command
from offload_tool.manifest.manifest import PassRecord
from offload_tool.manifest.pass_run import PassRun, Resolver
from offload_tool.toolchain.identity import configuring_files

WRITES_FILES = SIBLING | ELSEWHERE | LINKER | WRITES | DEPFILE
"""Options with further outputs, or with outputs that several runs share."""


class Work(NamedTuple):
    """A command with one output, and everything that determines the output."""

    output: str
    command: Sequence[str]
    """Without launcher and without flags that write a depfile."""
    environment: Mapping[str, str]
    compiler: str
    inputs: tuple[str, ...]
    """Files that it certainly reads."""
    implicit_inputs: Callable[[], ImplicitInputs]
    files_read: Callable[[], list[str]]
    """Returns the files that it has read, from its depfile."""
    preprocess: Callable[[], list[str] | None] | None = None
    """Runs the preprocessor on the source; None without one."""
    by_inode: bool = False
    """The output holds the inode numbers of the files that were read."""
    names_all_inputs: bool = True
    version: Callable[[], str] = str
    """Returns the compiler's present version text, if the programs that it calls are not known."""


class CommandResolver(Resolver):
    """What a command with one output is made of: its files are plain paths."""

    args: Sequence[str] = ()

    def __init__(self, work: Work, digests: DigestCache) -> None:
        self.args = work.command
        self.with_identity = work.by_inode
        self.reads_headers = work.preprocess is not None
        self._work, self._digests = work, digests

    @property
    def output(self) -> str:
        """The name of the output."""
        return self._work.output

    @property
    def is_recordable(self) -> bool:
        """Whether all inputs and outputs are known: no libraries of linkers, no further outputs."""
        work, args = self._work, all_args(self.args)
        if not work.names_all_inputs or any(does(arg, WRITES_FILES) for arg in args):
            return False
        if unlisted_by_linker(args):
            return False
        if self.reads_headers:
            return True
        begins = (content_of(name, len(THIN_ARCHIVE)) for name in self.files_read())
        return not any(does(arg, LIBRARY) for arg in args) and THIN_ARCHIVE not in begins

    def _named_files(self) -> list[str]:
        args, own = options_of(self.args), {self._work.output, *self._work.inputs}
        general = general_args(self.args, own)
        named = (*possible_files(args), *configuring_files(general, self._work.environment))
        return [name for name in dict.fromkeys(named) if name not in own and os.path.isfile(name)]

    def key(self, _record: PassRecord | None) -> Key:
        """Return what is known before the pass runs."""
        work = self._work
        implicit_inputs = work.implicit_inputs()
        named = (*self._named_files(), *implicit_inputs.libraries)
        return key_of_command(
            work.command,
            work.compiler,
            work.version(),
            work.environment,
            {name: self._digests.digest(name) for name in named},
            embeds_folder=implicit_inputs.embeds_folder,
        )

    def inputs_before(self) -> list[str]:
        """Return the inputs that the command names."""
        return [*self._work.inputs, *self._named_files()]

    def files_read(self) -> list[str]:
        """Return the files that the run has read."""
        return list(dict.fromkeys([*self._work.files_read(), *self._work.inputs]))

    def preprocess(self) -> list[str] | None:
        """Return the files that the preprocessor reads now; None if it fails."""
        read = self._work.preprocess() if self._work.preprocess is not None else None
        return None if read is None else list(dict.fromkeys([*read, *self._work.inputs]))

    def search_path(self) -> tuple[str, ...]:
        """Return the folders in which the command searches for headers."""
        return self._work.implicit_inputs().folders


def pass_run(work: Work, digests: DigestCache | None = None) -> PassRun:
    """Return the engine of a command; `digests` are the known digests."""
    digests = digests or DigestCache()
    return PassRun(CommandResolver(work, digests), digests)
