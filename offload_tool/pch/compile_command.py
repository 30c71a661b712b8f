"""Precompiled headers for ``offload-tool compile``: one command makes a PCH, others use it.

Both need the same flags, compiler and working directory, which the PCH's manifest records. Any
other pass compiles without the PCH, and prints the reason.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from offload_tool.clang.argument_files import all_args
from offload_tool.errors import UsageError
from offload_tool.manifest.inputs import general_args
from offload_tool.pch import pch
from offload_tool.pch.eligibility import reason_of_flags
from offload_tool.pch.recipe import PchRecipe
from offload_tool.run.pass_command import (
    PassCommand,
    WantedPass,
    compiler_version,
    pass_command,
)
from offload_tool.run.run_pass import Outputs, check_names, write_depfile_and_stamp
from offload_tool.run.validate_flags import check_depfile_flags, check_flags
from offload_tool.toolchain.driver_cache import cached_args, cached_front_end

if TYPE_CHECKING:
    from offload_tool.manifest.cut_off import Stages
    from offload_tool.passes.command import Command


def emit_pch(wanted: WantedPass, outputs: Outputs, *, report: Callable[[str], None]) -> int:
    """Make a PCH of the leading includes of a source; return the compiler's exit status.

    If there are none, the PCH holds the first header on the chain of first includes. If no PCH is
    possible, the output is a line with the reason, which `report` also prints.

    :raises TargetIDError, UsageError: no such pass, or no includes.
    :raises FileError: an input cannot be read, or an output cannot be written.
    :raises CompilerError: no compiler, or one that cannot be run.
    """
    check_names([wanted.source], outputs)
    check_flags(wanted.flags)
    check_depfile_flags(wanted.flags, outputs.depfile)
    parts = pass_command(wanted)
    recipe = _recipe(outputs.file, wanted, parts)
    candidates = recipe.search_path.candidates(wanted.source)
    if not candidates.all:
        raise UsageError(
            f"'{candidates.stop}': expected lines '#include <...>', or one of a header that has "
            "'#pragma once' or an include guard"
        )
    installed = [wanted.source, *parts.installed]
    reason = _reason(recipe, wanted)
    if reason:
        pch.refuse(outputs.file, reason)
        write_depfile_and_stamp(outputs, installed, parts.compiler)
        report(f"'{outputs.file}': no precompiled header: {reason}")
        return 0
    candidate = candidates.all[0]
    status = pch.make_pch(recipe, candidate, failed=_pass_on, outputs=outputs, installed=installed)
    if status == 0 and (refusal := pch.refusal_of(outputs.file)):
        report(f"'{outputs.file}': no precompiled header: {refusal}")
    return status


def _pass_on(messages: bytes) -> None:
    sys.stderr.buffer.write(messages)
    sys.stderr.flush()


class PassWithPch:
    """A pass that may use a PCH."""

    def __init__(
        self,
        file: str,
        report: Callable[[str], None],
        launcher: Sequence[str],
        *,
        wanted: WantedPass,
        parts: PassCommand,
        command: Command,
        stages: Stages | None,
    ) -> None:
        """Set the PCH `file`, `report` for the reason against it, and a `launcher` or `stages`."""
        self._report, self._launcher, self._stages = report, launcher, stages
        self._file, self._source, self._command = file, wanted.source, command
        self._recipe = _recipe(file, wanted, parts)
        self._reason = functools.partial(_reason, self._recipe, wanted)
        self._is_distributed = bool(wanted.environ.get("OFFLOAD_DIST"))
        self._used: pch.UsablePch | None = None

    def run(self) -> bool:
        """Run the pass with the PCH; return True if it produced the output."""
        usable = self._find()
        if isinstance(usable, str):
            reason = usable
        else:
            without_driver = None
            if self._stages is not None:
                from offload_tool.run.driverless import DirectPasses

                without_driver = functools.partial(DirectPasses().run_quietly, stages=self._stages)
            reason = usable.run(self._command, self._launcher, without_driver)
            self._used = None if reason else usable
        if reason and reason != pch.MESSAGES:  # the compile without the PCH prints those
            self._report(f"'{self._source}': '{self._file}' is not used: {reason}")
        return not reason

    def _find(self) -> pch.UsablePch | str:
        if self._is_distributed:
            return "OFFLOAD_DIST is set"
        return self._reason() or pch.find_usable(self._recipe, self._source)

    def files_read(self, listed: list[str]) -> list[str]:
        """Return the files that the pass read; `listed` are those in its depfile."""
        return listed if self._used is None else self._used.files_read(self._source, listed)


def _recipe(file: str, wanted: WantedPass, parts: PassCommand) -> PchRecipe:
    args = [*parts.args, *wanted.flags, *parts.last]
    environment = {**wanted.environ, **parts.environment}
    return PchRecipe(
        os.path.abspath(file),
        wanted.stage,
        pch.args_without_source(args),
        len(parts.compiler),
        environment,
        parts.identity,
        functools.cache(lambda: cached_front_end(general_args(all_args(args), ()), environment)),
        functools.cache(lambda: compiler_version(parts)),
    )


def _reason(recipe: PchRecipe, wanted: WantedPass) -> str:
    """Return why the pass's flags rule out a PCH; "" if they do not."""

    def find() -> list[str]:
        return [reason_of_flags(wanted.kind, recipe.args, recipe.environment)]

    what = f"precompiled header, {wanted.kind} {wanted.stage}"
    (reason,) = cached_args(what, recipe.args, recipe.environment, find)
    return reason
