"""The default command lines of nodes, their messages, and the suffixes of their files.

Users may set each of them as a construction variable.
"""

from __future__ import annotations

from typing import Any

from offload_tool.scons import compat

_COMPILE = (
    "$_OFFLOAD_PROGRAM $_OFFLOAD_PASS_FLAGS "
    "$_OFFLOAD_LANGUAGE_FLAGS $CCFLAGS $CPPFLAGS $_CPPDEFFLAGS $_OFFLOAD_INCLUDES {flags} "
    "$_OFFLOAD_LAST_FLAGS $_OFFLOAD_DEPENDENCY_FLAGS -o $TARGET $SOURCE"
)

_SHOWN_AS_NAMED = (
    *("ARCHIVE", "BUNDLE", "EMBED", "EXTRACT", "FATBIN", "MARK", "MARKER", "MERGE"),
    *("PACKAGE", "REGISTER", "REPACK", "REPORT", "UNBUNDLE", "WRAP"),
)
"""Actions whose message is their name and the output."""

COMMAND_LINES: dict[str, Any] = {
    # Commands and the messages shown instead; an empty message shows the command.
    "OFFLOADDEVICECOM": _COMPILE.format(flags="$OFFLOAD_FLAGS $_OFFLOAD_ARCH_FLAGS"),
    "OFFLOADDEVICECOMSTR": "$_OFFLOAD_LANGUAGE [$_OFFLOAD_TARGET_ID] $_OFFLOAD_SHOWN",
    "OFFLOADHOSTCOM": _COMPILE.format(flags="$_OFFLOAD_PIC_FLAGS $OFFLOAD_HOST_FLAGS"),
    "OFFLOADHOSTCOMSTR": "$_OFFLOAD_LANGUAGE [host] $_OFFLOAD_SHOWN",
    "OFFLOADHOSTIRCOM": (
        "$_OFFLOAD_PROGRAM $_OFFLOAD_PASS_FLAGS "
        "$_OFFLOAD_LANGUAGE_FLAGS $CCFLAGS $_OFFLOAD_PIC_FLAGS $OFFLOAD_HOST_FLAGS "
        "-o $TARGET $SOURCE"
    ),
    "OFFLOADHOSTIRCOMSTR": "$_OFFLOAD_LANGUAGE [host code] $_OFFLOAD_SHOWN",
    "OFFLOADLINKCOM": (
        "$( $_OFFLOAD_LINKER $) $_OFFLOAD_LINK_ARGUMENTS $OFFLOAD_LINK_FLAGS -o $TARGET "
        "$_OFFLOAD_LINK_INPUTS"
    ),
    "OFFLOADLINKCOMSTR": "LINK [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADPTXASCOM": (
        "$( $_OFFLOAD_PTXAS $) $_OFFLOAD_PTXAS_ARGUMENTS $_OFFLOAD_PTXAS_FLAGS "
        "$OFFLOAD_PTXAS_FLAGS -o $TARGET $SOURCE"
    ),
    "OFFLOADCUDALINKCOMSTR": "LINK [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADPTXASCOMSTR": "PTXAS [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADREGISTERCOM": "$( $_OFFLOAD_CC $) $_OFFLOAD_REGISTER_FLAGS -o $TARGET $( $SOURCE $)",
    "OFFLOADMERGECOM": "$( $_OFFLOAD_LLD $) -r -o $TARGET $SOURCES",
    **{f"OFFLOAD{name}COMSTR": f"{name} $TARGET" for name in _SHOWN_AS_NAMED},
    "OFFLOADCOMPILECOMMANDSCOMSTR": "COMMANDS $TARGET",
    "OFFLOADDEVICEARCHIVECOMSTR": "ARCHIVE [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADKPACKCOMSTR": "KPACK [$_OFFLOAD_TARGET_ID] $TARGET",
    "OFFLOADREPORTCOM": (
        "$( $_OFFLOAD_PYTHON $) -m offload_tool report $SOURCES -o $TARGET "
        "$_OFFLOAD_REPORT_COMPARE $OFFLOAD_REPORT_FLAGS"
    ),
    # File names: <stem>.<target ID><suffix>
    "OFFLOADDEVICESUFFIX": ".co",
    "OFFLOADHOSTSUFFIX": ".host.o",
    "OFFLOADSHHOSTSUFFIX": ".host.pic.o",
    "OFFLOADBUNDLESUFFIX": ".hipfb",
    "OFFLOADEMBEDSUFFIX": ".fatbin.o",
    "OFFLOADPACKAGESUFFIX": ".offload",
    "OFFLOADMARKERSUFFIX": ".kpackref",
    # Variables of SCons's C tools that the compile commands above use, if those are not loaded.
    "CFLAGS": [],
    "LIBPREFIX": "lib",
    "LIBSUFFIX": ".a",
    "OBJSUFFIX": ".o",
    "SHLIBSUFFIX": ".so",
    "SHOBJSUFFIX": ".os",
    "_OFFLOAD_INCLUDES": compat.include_flags,
    "_OFFLOAD_SHOWN": "$SOURCE",
    "INCPREFIX": "-I",
    "INCSUFFIX": "",
    "CPPDEFPREFIX": "-D",
    "CPPDEFSUFFIX": "",
}
