"""Target IDs: what is accepted, what it becomes, which devices load what."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import TargetIDError
from offload_tool.formats.targets.processors import PROCESSORS
from offload_tool.formats.targets.target_id import TargetID, incompatibility, parse_target_ids

GPUS = [row for row in PROCESSORS.values() if row.family in {"amdgcn", "nvptx", "spirv"}]


@st.composite
def target_ids(draw, rows=GPUS):
    row = draw(st.sampled_from(rows))
    signs = {feature: draw(st.sampled_from([None, True, False])) for feature in row.features}
    return TargetID(row.name, tuple((f, on) for f, on in signs.items() if on is not None))


# Few processors, so that pairs often share one.
GFX906_OR_GFX90A = target_ids([PROCESSORS["gfx906"], PROCESSORS["gfx90a"]])


def problems_of(text, **options):
    with pytest.raises(TargetIDError) as caught:
        TargetID.parse(text, **options)
    return caught.value.problems


@given(target_ids(), st.randoms(use_true_random=False))
def test_every_spelling_of_a_target_id_is_the_same_value(target, random):
    names = [target.processor, *PROCESSORS[target.processor].alternative_names]
    features = [f"{name}{'-+'[on]}" for name, on in target.features]
    random.shuffle(features)
    parsed = TargetID.parse(":".join([random.choice(names), *features]))
    assert parsed == target
    assert hash(parsed) == hash(target)
    assert TargetID.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["processor is missing"]),
        (":xnack+", ["processor is missing"]),
        ("gfx90x", ["unknown processor 'gfx90x', did you mean 'gfx9"]),
        ("GFX906", ["did you mean 'gfx906'"]),
        ("quux", ["unknown processor 'quux', write a name such as"]),
        ("gfx1030:xnack+", ["'gfx1030' supports no features, not 'xnack'"]),
        ("gfx900:sramecc+", ["'gfx900' supports 'xnack', not 'sramecc'"]),
        ("gfx906:xnack", ["'xnack' must be a name and one sign"]),
        ("gfx906:xnack++", ["'xnack++' must be a name and one sign"]),
        ("gfx906:xnack+:xnack-", ["'xnack' is given more than once"]),
        ("gfx906::", ["'' names no feature"]),
        ("gfx906:+", ["'+' names no feature"]),
        ("gfx906::xnack+", ["'' names no feature"]),
        ("sm_70:xnack+", ["'sm_70' supports no features"]),
        ("amdgcnspirv:xnack+", ["'amdgcnspirv' supports no features"]),
        ("generic", ["'generic' names no GPU"]),
        ("gfx906:foo:xnack+:xnack-", ["not 'foo'", "'foo' must be", "'xnack' is given more"]),
        ("nope:xnack:a+:a+", ["unknown processor 'nope'", "'xnack' must be", "'a' is given more"]),
    ],
)
def test_parse_names_every_problem(text, parts):
    problems = problems_of(text)
    assert len(problems) == len(parts)
    for problem, part in zip(problems, parts, strict=True):
        assert problem.startswith(f"invalid target ID '{text}': ")
        assert part in problem


def test_unknown_processors_are_kept_when_allowed():
    newer = TargetID.parse("gfx1399:zeta-:alpha+", allow_unknown=True)
    assert (str(newer), newer.filename) == ("gfx1399:alpha+:zeta-", "gfx1399_alpha+_zeta-")
    assert newer.triple == "amdgcn-amd-amdhsa-"


@pytest.mark.parametrize("text", ["gfx1399:alpha", "gfx1399:a+:a-", "gfx906:foo+", "../x", "a b"])
def test_allowing_unknown_processors_allows_nothing_else(text):
    assert problems_of(text, allow_unknown=True)


@given(st.text() | st.text(alphabet="gfx906:xnack+- "), st.booleans())
def test_any_text_is_an_id_or_a_problem(text, allow_unknown):
    try:
        target = TargetID.parse(text, allow_unknown=allow_unknown)
    except TargetIDError as error:
        problems = error.problems
    else:
        problems = ()
        assert TargetID.parse(str(target), allow_unknown=allow_unknown) == target
    assert all(problem.isprintable() for problem in problems)


@given(target_ids(), target_ids())
def test_filenames_are_distinct_and_portable(first, second):
    assert (first.filename == second.filename) == (first == second)
    assert set(first.filename) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-+")


@pytest.mark.parametrize(
    ("text", "triple"),
    [
        ("gfx90a:xnack+", "amdgcn-amd-amdhsa-"),
        ("tahiti", "amdgcn-amd-amdhsa-"),
        ("gfx9-generic", "amdgcn-amd-amdhsa-"),
        ("amdgcnspirv", "spirv64-amd-amdhsa-"),
        ("sm_90", "nvptx64-nvidia-cuda-unknown"),
        ("sm_999", "nvptx64-nvidia-cuda-unknown"),
    ],
)
def test_triple_is_the_one_bundles_write(text, triple):
    assert TargetID.parse(text, allow_unknown=True).triple == triple


def test_triple_of_an_unknown_family_is_refused():
    with pytest.raises(TargetIDError, match="give the triple"):
        _ = TargetID.parse("quux", allow_unknown=True).triple


@given(st.lists(target_ids(), max_size=6))
def test_order_is_that_of_the_canonical_bytes(targets):
    by_bytes = sorted((str(t) for t in targets), key=str.encode)
    assert [str(t) for t in sorted(targets)] == by_bytes
    with pytest.raises(TypeError):
        sorted([TargetID.parse("gfx906"), "gfx906"])


def test_list_keeps_order_and_drops_duplicates():
    parsed = parse_target_ids(["gfx906:xnack+:sramecc+, gfx90a", "tahiti gfx600", "gfx90a:", " "])
    assert [str(t) for t in parsed] == ["gfx906:sramecc+:xnack+", "gfx90a", "gfx600"]


def test_list_reports_every_problem_at_once():
    with pytest.raises(TargetIDError) as caught:
        parse_target_ids(
            ["gfx906:xnack-", "gfx90x", "gfx906,gfx906:xnack+", "gfx908:foo+", "gfx1030:xnack"]
        )
    problems = caught.value.problems
    assert ["'gfx90x'" in problems[0], "'gfx908:foo+'" in problems[1]] == [True, True]
    assert [p.split(": ")[0] for p in problems[2:4]] == ["invalid target ID 'gfx1030:xnack'"] * 2
    assert problems[4:] == tuple(
        f"conflicting target IDs 'gfx906' and 'gfx906:xnack{sign}': "
        "set 'xnack' for every target ID of gfx906 or for none"
        for sign in "+-"
    )


@given(st.lists(GFX906_OR_GFX90A, max_size=5))
def test_a_set_without_conflicts_is_uniform_per_processor(targets):
    names = {(t.processor, tuple(name for name, _ in t.features)) for t in targets}
    uniform = len(names) == len({processor for processor, _ in names})
    if uniform:
        assert set(parse_target_ids(map(str, targets))) == set(targets)
    else:
        with pytest.raises(TargetIDError, match="conflicting target IDs"):
            parse_target_ids(map(str, targets))


@given(GFX906_OR_GFX90A, GFX906_OR_GFX90A)
def test_compatibility_is_a_partial_order(first, second):
    """An ID serves itself, and two IDs serve each other only if they are the same."""
    assert incompatibility(first, first) is None
    both = (incompatibility(first, second), incompatibility(second, first))
    assert (both == (None, None)) == (first == second)


@pytest.mark.llvm
@pytest.mark.parametrize(
    "text",
    [
        *("gfx906:", "gfx906:xnack+:", "gfx906::", "gfx906::xnack+", "gfx906:+", "GFX906"),
        *("tahiti", "gfx906:xnack", "gfx906:xnack+:xnack+", "gfx906:xnack++", "generic", "gfx906 "),
        *("amdgcnspirv", "amdgcnspirv:xnack+", "carrizo:xnack-", "gfx906:xnack+:sramecc-"),
    ],
)
def test_clang_accepts_the_same_spellings(llvm, text):
    command = [llvm("clang"), "-###", "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output"]
    command += ["-nogpuinc", "-nogpulib", "-c", f"--offload-arch={text}", "/dev/null"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        canonical = str(TargetID.parse(text))
    except TargetIDError:
        assert run.returncode != 0
    else:
        assert run.returncode == 0
        assert f"null-hip-amdgcn-amd-amdhsa-{canonical}.o" in run.stderr or (
            f"null-{canonical}-" in run.stderr
        )
