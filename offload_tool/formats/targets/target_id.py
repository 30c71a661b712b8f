"""Target IDs: a processor and the settings of its target features.

::

    gfx90a : sramecc+ : xnack-
    ^^^^^^   ^^^^^^^^   ^^^^^^
    processor  on         off     (a feature left out is Any: code for both settings)

User input may have an alternative processor name and any order of features. A `TargetID` always
holds the canonical form (primary name, features sorted), which is used in files, file names and
messages.

Sources: the ClangOffloadBundler documentation (Target ID, Bundled Code Object Composition,
Compatibility Rules for Target ID), AMDGPUUsage (Target ID), and clang 22.1.8, observed: it accepts
one final colon, so ``gfx906:`` is ``gfx906``.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator

from offload_tool.errors import TargetIDError
from offload_tool.formats.targets.processors import Processor, find_processor, nearest_names
from offload_tool.util.frozen import frozen

_PROCESSOR = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_FEATURE = r"([A-Za-z0-9_]+)([+-])"

# The device triple of each family, four fields, as clang-offload-bundler 22 writes it: only an
# amdhsa triple has an empty environment.
_TRIPLES = {
    "amdgcn": "amdgcn-amd-amdhsa-",
    "nvptx": "nvptx64-nvidia-cuda-unknown",
    "spirv": "spirv64-amd-amdhsa-",
}


@functools.total_ordering
@frozen
class TargetID:
    """A target ID in canonical form; `features` maps each set feature to on or off.

    IDs with equal settings are equal, whatever their original form; the order is that of the
    canonical strings' bytes. `TargetID.parse` checks user input.
    """

    processor: str
    features: tuple[tuple[str, bool], ...] = ()

    def __init__(self, processor: str, features: Iterable[tuple[str, bool]] = ()) -> None:
        object.__setattr__(self, "processor", processor)
        object.__setattr__(self, "features", tuple(sorted(features)))

    @classmethod
    def parse(cls, text: str, *, allow_unknown: bool = False) -> TargetID:
        """Parse `text` as one target ID, canonical or not.

        `allow_unknown` keeps a processor that is not in the table, with any well-formed features.

        :raises TargetIDError: `text` is not one; the message lists every problem.
        """
        name, *parts = text.split(":")
        if parts and not parts[-1]:
            parts.pop()  # clang accepts an empty feature at the end
        processor = find_processor(name)
        problems = [
            *_processor_problems(name, processor, allow_unknown=allow_unknown),
            *_feature_problems(parts, processor),
        ]
        if problems:
            raise TargetIDError(f"invalid target ID {text!r}: {problem}" for problem in problems)
        features = ((part[:-1], part[-1] == "+") for part in parts)
        return cls(processor.name if processor else name, tuple(features))

    def __str__(self) -> str:
        return ":".join([self.processor, *(f"{name}{'-+'[on]}" for name, on in self.features)])

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, TargetID):
            return NotImplemented
        return str(self) < str(other)  # the order of code points is that of their UTF-8 bytes

    @property
    def filename(self) -> str:
        """The canonical form as part of a file name: underscores for colons, as in LLVM."""
        return str(self).replace(":", "_")

    @property
    def triple(self) -> str:
        """The device triple, four fields, e.g. ``amdgcn-amd-amdhsa-``.

        :raises TargetIDError: the processor's family is unknown.
        """
        processor = find_processor(self.processor)
        prefixes = {"gfx": "amdgcn", "sm_": "nvptx"}
        family = processor.family if processor else prefixes.get(self.processor[:3], "")
        if family not in _TRIPLES:
            raise TargetIDError(
                [f"no device triple is known for processor '{self.processor}'; give the triple"]
            )
        return _TRIPLES[family]


def _processor_problems(
    name: str, processor: Processor | None, *, allow_unknown: bool
) -> Iterator[str]:
    if not name:
        yield "the processor is missing, write one such as 'gfx90a' first"
    elif processor is None and allow_unknown:
        if not re.fullmatch(_PROCESSOR, name):
            yield f"{name!r} cannot be a processor name, use letters, digits, '_', '-' and '.'"
    elif processor is None:
        near = " or ".join(f"'{n}'" for n in nearest_names(name))
        advice = f"did you mean {near}?" if near else "write a name such as 'gfx90a' or 'sm_90'"
        yield f"unknown processor {name!r}, {advice}"
    elif processor.family not in _TRIPLES and not allow_unknown:
        yield f"'{name}' names no GPU to compile for, write a name such as 'gfx90a' or 'sm_90'"


def _feature_problems(parts: list[str], processor: Processor | None) -> Iterator[str]:
    seen: set[str] = set()
    for part in parts:
        feature = part.rstrip("+-")
        if not feature:
            yield f"{part!r} names no feature, remove it"
            continue
        if feature in seen:
            yield f"feature {feature!r} is given more than once, keep one"
        elif processor is not None and feature not in processor.features:
            yield f"{_supported(processor)}, not {feature!r}"
        if not re.fullmatch(_FEATURE, part):
            yield f"{part!r} must be a name and one sign, as in 'xnack+' or 'xnack-'"
        seen.add(feature)


def _supported(processor: Processor) -> str:
    if not processor.features:
        return f"processor '{processor.name}' supports no features"
    features = " and ".join(f"'{feature}'" for feature in processor.features)
    return f"processor '{processor.name}' supports {features}"


def _conflicts(ids: Iterable[TargetID]) -> Iterator[str]:
    """Yield why some IDs cannot share a bundle: a feature that is Any in one must be Any in all.

    LLVM 22 names each violation with the first ID of its processor in canonical order, too.
    """
    for processor, (first, *others) in itertools.groupby(sorted(ids), key=lambda i: i.processor):
        names = {name for name, _ in first.features}
        for other in others:
            features = sorted(names ^ {name for name, _ in other.features})
            if features:
                listed = " and ".join(f"'{feature}'" for feature in features)
                yield (
                    f"conflicting target IDs '{first}' and '{other}': set {listed} "
                    f"for every target ID of {processor} or for none"
                )


def split_list(text: str) -> list[str]:
    """Return the items of a list separated by commas, blanks, or semicolons (CMake)."""
    return re.split(r"[,;\s]+", text.strip(",; \t\n")) if text.strip(",; \t\n") else []


def parse_target_ids(items: Iterable[str], *, allow_unknown: bool = False) -> tuple[TargetID, ...]:
    """Parse a list of target IDs; each item may list several, as for `split_list`.

    Order is kept and repeated IDs are dropped. A single `TargetIDError` reports every problem of
    every item, in order, then every conflict between the valid ones.
    """
    found: dict[TargetID, None] = {}
    problems: list[str] = []
    for text in itertools.chain.from_iterable(split_list(item) for item in items):
        try:
            found[TargetID.parse(text, allow_unknown=allow_unknown)] = None
        except TargetIDError as error:
            problems += error.problems
    problems += _conflicts(found)
    if problems:
        raise TargetIDError(problems)
    return tuple(found)


def incompatibility(code_object: TargetID, device: TargetID) -> str | None:
    """Return briefly why `device` cannot load `code_object`; None if it can.

    The processors must be equal, and every feature that the code object sets must have the same
    setting on the device; open features match any setting. This includes generic processors: LLVM
    leaves their coverage to the runtimes. Source: Compatibility Rules for Target ID.
    """
    if code_object.processor != device.processor:
        return f"processor {code_object.processor} is not {device.processor}"
    settings = dict(device.features)
    for name, on in code_object.features:
        if name not in settings:
            return f"needs {name}{'-+'[on]}, which {device} leaves open"
        if settings[name] != on:
            return f"needs {name}{'-+'[on]}, not {name}{'+-'[on]}"
    return None
