"""The host pass beside the device passes, although its object holds what these make.

The compiler is given a placeholder to put into the host object. The object gets the true content
when that is there, in the layout that the compiler would have chosen (`growing`): the host pass
waits for no target, and its result depends on none.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from offload_tool.launch.driver_plan import DriverJob

__all__ = ["can_wait", "embed_now", "write_placeholder"]

_PLACEHOLDER = b"offload-tool: the place of device code, which is compiled meanwhile.\n" * 64
"""Of no usual size, so that it is found; not so short that an optimizer would copy it."""


def can_wait(job: DriverJob) -> bool:
    """Tell whether a job is a host pass whose object can get the device code later."""
    return (
        job.sort == "cc1"
        and "-emit-obj" in job.words
        and len(job.needs) == 1
        and len(job.embedded()) == 1
        and not any(word.startswith("-flto") for word in job.words)
    )


def write_placeholder(folder: str) -> str:
    """Write the file that is embedded at first; give its name."""
    name = os.path.join(folder, "placeholder")  # noqa: PTH118
    with open(name, "wb") as file:  # noqa: PTH123
        file.write(_PLACEHOLDER)
    return name


def embed_now(made: str, images: str, output: str) -> None:
    """Write the object `made`, with `images` in the place of the placeholder, to `output`.

    :raises ContentError: the compiler has laid it out in a way that is not known.
    :raises FileError: a file cannot be read or written.
    """
    from offload_tool.files import InputFile, replace_file
    from offload_tool.formats.objects.growing import plan_with_content

    with InputFile(made) as host, InputFile(images) as content:
        plan = plan_with_content(host.data, _PLACEHOLDER, len(content), path=made)
        with replace_file(output) as out:
            plan.bound(host, [content]).write_to(out)
