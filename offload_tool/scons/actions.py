"""The actions of the tool's nodes.

SCons puts the bytecode of an action function into the signatures of all its targets.
The functions in `ACTIONS` are therefore one line each and stay as they are; what matters
to the result is in the specs named by their ``varlist``, and the work is done below.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import SCons.Action
import SCons.Errors

from offload_tool.compiler.check import check_code_object, check_host_object
from offload_tool.errors import OffloadError
from offload_tool.formats.entry_id import BundleEntryID
from offload_tool.formats.target_id import TargetID
from offload_tool.operations.bundling import Compression, bundle_files
from offload_tool.operations.embedding import embed_bundle
from offload_tool.operations.unbundling import unbundle_file
from offload_tool.scons.dependencies import record_dependencies

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BUNDLE", "DEVICE", "EMBED", "HOST", "MERGE", "UNBUNDLE"]


def offload_check_device(target: Any, source: Any, env: Any) -> int:
    return _run(_finish_device, target, source, env)


def offload_check_host(target: Any, source: Any, env: Any) -> int:
    return _run(_finish_host, target, source, env)


def offload_bundle(target: Any, source: Any, env: Any) -> int:
    return _run(_bundle, target, source, env)


def offload_unbundle(target: Any, source: Any, env: Any) -> int:
    return _run(_unbundle, target, source, env)


def offload_embed(target: Any, source: Any, env: Any) -> int:
    return _run(_embed, target, source, env)


DEVICE = SCons.Action.Action(
    [
        SCons.Action.Action("$OFFLOADDEVICECOM", "$OFFLOADDEVICECOMSTR"),
        SCons.Action.Action(offload_check_device, cmdstr=None),
    ]
)
HOST = SCons.Action.Action(
    [
        SCons.Action.Action("$OFFLOADHOSTCOM", "$OFFLOADHOSTCOMSTR"),
        SCons.Action.Action(offload_check_host, cmdstr=None),
    ]
)
MERGE = SCons.Action.Action("$OFFLOADMERGECOM", "$OFFLOADMERGECOMSTR")
BUNDLE = SCons.Action.Action(
    offload_bundle, "$OFFLOADBUNDLECOMSTR", varlist=["_OFFLOAD_BUNDLE_SPEC"]
)
UNBUNDLE = SCons.Action.Action(
    offload_unbundle, "$OFFLOADUNBUNDLECOMSTR", varlist=["_OFFLOAD_UNBUNDLE_SPEC"]
)
EMBED = SCons.Action.Action(offload_embed, "$OFFLOADEMBEDCOMSTR", varlist=["_OFFLOAD_EMBED_SPEC"])


def _run(work: Callable[[Any, Any, Any], None], target: Any, source: Any, env: Any) -> int:
    """Do the work; turn an error into SCons's, and leave no output that is not right."""
    try:
        work(target, source, env)
    except OffloadError as error:
        Path(target[0].get_abspath()).unlink(missing_ok=True)
        raise SCons.Errors.BuildError(node=target[0], errstr=str(error)) from error
    return 0


def _finish_device(target: Any, source: Any, env: Any) -> None:
    target_id = TargetID.parse(env["_OFFLOAD_TARGET_ID"], allow_unknown=True)
    check_code_object(str(target[0]), target_id, env["_OFFLOAD_CUID"])
    record_dependencies(target[0], source[0], env)


def _finish_host(target: Any, source: Any, env: Any) -> None:
    check_host_object(str(target[0]), env["_OFFLOAD_CUID"])
    record_dependencies(target[0], source[0], env)


def _bundle(target: Any, source: Any, env: Any) -> None:
    spec = json.loads(env["_OFFLOAD_BUNDLE_SPEC"])
    items = [
        (BundleEntryID.read(entry), None if index is None else str(source[index]))
        for entry, index in spec["entries"]
    ]
    method, level = spec["compression"]
    compression = Compression(method, level) if method else None
    bundle_files(str(target[0]), items, alignment=spec["alignment"], compression=compression)


def _unbundle(target: Any, source: Any, env: Any) -> None:
    spec = json.loads(env["_OFFLOAD_UNBUNDLE_SPEC"])
    unbundle_file(str(source[0]), {BundleEntryID.parse(spec["entry"]): str(target[0])})


def _embed(target: Any, source: Any, env: Any) -> None:
    spec = json.loads(env["_OFFLOAD_EMBED_SPEC"])
    embed_bundle(str(target[0]), str(source[0]), cuid=spec["cuid"], host_triple=spec["host_triple"])
