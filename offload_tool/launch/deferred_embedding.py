"""The host pass beside the device passes, although its object holds what these make.

The compiler is given a placeholder to put into the host object. The object gets the true content
when that is there, in the layout that the compiler would have chosen (`resize_section`): the host
pass waits for no target, and its result depends on none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload_tool.clang.job_plan import DriverJob

PLACEHOLDER_FILE = os.path.join(os.path.dirname(__file__), "placeholder.txt")
"""What is embedded at first: of no usual size, and not so short that an optimizer would copy it.

It is the same file for all runs, so that a compiler cache knows the host pass again.
"""


def can_wait(job: DriverJob) -> bool:
    """Return whether a job is a host pass whose object can get the device code later."""
    return (
        job.sort == "cc1"
        and "-emit-obj" in job.words
        and len(job.needs) == 1
        and len(job.embedded()) == 1
        and not any(word.startswith("-flto") for word in job.words)
    )


def embed_now(made: str, images: str, output: str) -> None:
    """Write the object `made`, with `images` in the place of the placeholder, to `output`.

    :raises ContentError: the compiler has laid it out in a way that is not known.
    :raises FileError: a file cannot be read or written.
    """
    from offload_tool.formats.objects.elf.resize_section import plan_with_content
    from offload_tool.io import InputFile, replace_file

    with open(PLACEHOLDER_FILE, "rb") as file:
        placeholder = file.read()
    with InputFile(made) as host, InputFile(images) as content:
        plan = plan_with_content(host.data, placeholder, len(content), path=made)
        with replace_file(output) as out:
            plan.bound(host, [content]).write_to(out)
