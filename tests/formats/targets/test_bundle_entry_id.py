"""Bundle entry IDs: typed, read, compared, chosen, put together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_tool.errors import EntryIDError
from offload_tool.formats.targets.bundle_entry_id import (
    BundleEntryID,
    OffloadKind,
    best_match,
    check_composition,
    find_conflicts,
    incompatibility,
    is_compatible,
)

HIP = "hip-amdgcn-amd-amdhsa-"  # and a target ID after another dash

KINDS = st.sampled_from(sorted(OffloadKind.ALL))
TRIPLES = st.sampled_from(
    ["amdgcn-amd-amdhsa-", "nvptx64-nvidia-cuda-unknown", "x86_64-unknown-linux-gnu"]
)
TARGET_IDS = st.sampled_from(
    ["", "gfx906", "gfx906:xnack+", "gfx906:sramecc-:xnack+", "gfx908", "gfx9-generic", "gfx1399"]
)
IDS = st.builds(BundleEntryID, KINDS, TRIPLES, TARGET_IDS)


def parse(text):
    """Parse an ID that must give no warning."""
    return BundleEntryID.parse(text, warn=pytest.fail)


def parse_with_warnings(text):
    warnings: list[str] = []
    return str(BundleEntryID.parse(text, warn=warnings.append)), warnings


@pytest.mark.parametrize(
    ("typed", "emitted"),
    [
        ("amdgcn-amd-amdhsa-gfx906", "amdgcn-amd-amdhsa--gfx906"),
        ("amdgcn-amd-amdhsa-gfx906-", "amdgcn-amd-amdhsa--gfx906"),
        ("amdgcn-amd-amdhsa-gfx906:xnack-", "amdgcn-amd-amdhsa--gfx906:xnack-"),
        ("amdgcn-amd-amdhsa-gfx906:xnack--", "amdgcn-amd-amdhsa--gfx906:xnack-"),
        ("amdgcn-amd-amdhsa-gfx906:xnack-:sramecc+", "amdgcn-amd-amdhsa--gfx906:sramecc+:xnack-"),
        ("amdgcn-amd-amdhsa-gfx9-4-generic", "amdgcn-amd-amdhsa--gfx9-4-generic"),
        ("amdgcn-amd-amdhsa-tahiti", "amdgcn-amd-amdhsa--gfx600"),
        ("nvptx64-nvidia-cuda-sm_70", "nvptx64-nvidia-cuda-unknown-sm_70"),
    ],
)
def test_old_triples_of_three_fields_are_understood(typed, emitted):
    """A target ID in place of the environment is one, with one warning that says so."""
    result, warnings = parse_with_warnings("hip-" + typed)
    assert result == "hip-" + emitted
    assert warnings == [
        f"'hip-{typed}' has a triple of three fields before its target ID: "
        f"it is taken as 'hip-{emitted}', write that"
    ]


def test_an_environment_before_a_target_id_stays_one():
    """Only a lone processor after the OS is an old spelling; LLVM's reading holds otherwise."""
    assert str(parse(HIP + "gfx906-gfx908")) == HIP + "-gfx908"
    assert str(parse("openmp-x86_64-pc-linux-generic")) == "openmp-x86_64-pc-linux-generic-"


@pytest.mark.parametrize(
    ("target_id", "part"),
    [
        ("gfx1399:zeta-", "unknown processor 'gfx1399'"),
        ("gfx906:bogus+", "supports 'sramecc' and 'xnack', not 'bogus'"),
        ("gfx906:xnack", "'xnack' must be a name and one sign"),
        ("gfx906:xnack+:xnack+", "more than once"),
        ("sm_70:xnack+", "supports no features"),
    ],
)
def test_target_ids_that_llvm_would_lose_are_kept_with_a_warning(target_id, part):
    """Unknown processors and features stay as typed; the warning says what is odd."""
    result, warnings = parse_with_warnings(HIP + "-" + target_id)
    assert result == HIP + "-" + target_id
    assert len(warnings) == 1
    assert part in warnings[0]


def test_an_old_triple_with_an_unknown_processor_warns_twice():
    result, warnings = parse_with_warnings(HIP + "gfx1399")
    assert result == HIP + "-gfx1399"
    assert len(warnings) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HIP + "-gfx906:xnack", "'xnack' must be a name and one sign"),
        (HIP + "-sm_80", "'sm_80' is no processor of amdgcn"),
        ("cuda-nvptx64-nvidia-cuda--compute_801", "'sm_801', did you mean 'sm_80'"),
    ],
)
def test_known_processors_alone(text, message):
    """With `known`, as in builds, an invalid target ID is an error; PTX is named after its GPU."""
    with pytest.raises(EntryIDError, match=message):
        BundleEntryID.parse_any_kind(text, known=lambda _: False)


def test_control_characters_are_refused():
    with pytest.raises(EntryIDError, match="cannot be printed"):
        BundleEntryID.parse("hip-amdgcn-amd-amdhsa--gfx906\n")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("host-x86_64-unknown-linux-gnu", ("host", "x86_64-unknown-linux-gnu", "")),
        ("host-x86_64-unknown-linux-gnu-", ("host", "x86_64-unknown-linux-gnu", "")),
        ("host-x86_64-unknown-linux", ("host", "x86_64-unknown-linux-", "")),
        (HIP + "gfx906", ("hip", "amdgcn-amd-amdhsa-", "gfx906")),
        (HIP + "gfx906:xnack-", ("hip", "amdgcn-amd-amdhsa-", "gfx906:xnack-")),
        (HIP + "-gfx90a:xnack+", ("hip", "amdgcn-amd-amdhsa-", "gfx90a:xnack+")),
        (
            HIP + "unknown-gfx906:xnack+:sramecc-",
            ("hip", "amdgcn-amd-amdhsa-unknown") + ("gfx906:sramecc-:xnack+",),
        ),
        ("cuda-nvptx64-nvidia-cuda-sm_70", ("cuda", "nvptx64-nvidia-cuda-", "sm_70")),
        (HIP + "-gfx906:odd", ("hip", "amdgcn-amd-amdhsa-", "gfx906:odd")),
        ("nonsense", ("nonsense", "---", "")),
        ("", ("", "---", "")),
    ],
)
def test_read_finds_the_fields(text, fields):
    entry = BundleEntryID.read(text)
    assert (entry.kind, entry.triple, entry.target_id) == fields


@given(st.text(alphabet="ahipgfx906-:+ \n\x00é", max_size=40) | st.text(max_size=20))
def test_read_never_raises_and_is_stable(text):
    entry = BundleEntryID.read(text)
    assert entry.triple.count("-") == 3
    assert BundleEntryID.read(str(entry)) == entry


@given(IDS)
def test_written_ids_are_parsed_and_read_as_themselves(entry):
    assert BundleEntryID.parse(str(entry)) == entry
    assert BundleEntryID.read(str(entry)) == entry
    assert incompatibility(entry, entry) is None


@pytest.mark.parametrize(
    ("code_object", "target", "reason"),
    [
        (HIP + "-gfx906", HIP + "-gfx906:xnack+", None),
        (HIP + "-gfx906", "hipv4-amdgcn-amd-amdhsa--gfx906", None),
        (HIP + "-", HIP + "-", None),
        (HIP + "-gfx906:bogus+", HIP + "-gfx906:bogus+", None),
        (HIP + "unknown-gfx906", HIP + "-gfx906", None),
        (HIP + "gfx906", HIP + "-gfx906", None),
        (HIP + "-tahiti", HIP + "-gfx600", None),
        (HIP + "-gfx1399", "hipv4-amdgcn-amd-amdhsa--gfx1399:zeta+", None),
        (HIP + "-gfx1399", HIP + "-gfx1398", "processor gfx1399 is not gfx1398"),
        (HIP + "-gfx906:xnack+", HIP + "-gfx906", "needs xnack+, which gfx906 leaves open"),
        (HIP + "-", "hipv4-amdgcn-amd-amdhsa--", "target ID (none) is not (none)"),
        (HIP + "-generic", "hipv4-amdgcn-amd-amdhsa--generic", "target ID 'generic' is not 'gene"),
        (HIP + "-", HIP + "-gfx906", "target ID (none) is not 'gfx906'"),
        (HIP + "-gfx906", "openmp-amdgcn-amd-amdhsa--gfx906", "offload kind hip is not openmp"),
        (HIP + "-gfx906", "hip-amdgcn-amd-amdpal--gfx906", "OS amdhsa is not amdpal"),
        (HIP + "-sm_70", "hipv4-amdgcn-amd-amdhsa--sm_70", "target ID 'sm_70' is not 'sm_70'"),
    ],
)
def test_compatibility_names_the_first_reason(code_object, target, reason):
    found = incompatibility(BundleEntryID.read(code_object), BundleEntryID.parse(target))
    assert found == reason or (reason and found and found.startswith(reason))


@pytest.mark.parametrize(("other", "serves"), [("hip", True), ("hipv4", True), ("host", False)])
def test_hip_and_openmp_serve_each_other_on_request_only(other, serves):
    """The option widens openmp and hip kinds, both ways, and nothing else."""
    openmp = BundleEntryID("openmp", "amdgcn-amd-amdhsa-", "gfx906")
    entry = BundleEntryID(other, "amdgcn-amd-amdhsa-", "gfx906")
    assert not is_compatible(entry, openmp)
    assert is_compatible(entry, openmp, hip_openmp=True) == serves
    assert is_compatible(openmp, entry, hip_openmp=True) == serves


@pytest.mark.parametrize(
    ("candidates", "index"),
    [
        ([], None),
        (["hip:gfx908"], None),
        (["hip:gfx906", "hip:gfx906:xnack+"], 1),
        (["hipv4:gfx906:xnack+", "hip:gfx906:xnack+"], 1),
        (["hip:gfx906", "hipv4:gfx906:xnack+"], 1),
        (["hip:gfx906", "hipv4:gfx906"], 0),
        (["openmp:gfx906:xnack+", "hipv4:gfx906", "hip:gfx906"], 1),
        (["hip:gfx906:xnack-", "hip:gfx906:sramecc+:xnack+"], None),
    ],
)
def test_best_match_prefers_the_exact_then_the_most_specific(candidates, index):
    """Exact ID first, then most features, then the earliest; never an incompatible one."""
    entries = [
        BundleEntryID(kind, "amdgcn-amd-amdhsa-", target_id)
        for kind, target_id in (candidate.split(":", 1) for candidate in candidates)
    ]
    assert best_match(entries, BundleEntryID.parse(HIP + "-gfx906:xnack+")) == index


@given(st.lists(IDS, max_size=6), IDS)
def test_best_match_is_some_entry_that_serves_if_there_is_any(entries, target):
    found = best_match(entries, target)
    assert (found is not None) == any(is_compatible(entry, target) for entry in entries)
    if found is not None:
        assert is_compatible(entries[found], target)
    if target in entries:
        assert found == entries.index(target)


def test_duplicates_name_both_spellings():
    spellings = [HIP + "-tahiti", HIP + "-gfx906", HIP + "unknown-gfx600"]
    ids = [BundleEntryID.parse(text) for text in spellings]
    assert find_conflicts(ids, spellings) == (
        f"Duplicate targets are not allowed: '{HIP}-tahiti' and '{HIP}unknown-gfx600' "
        f"are both '{HIP}-gfx600', remove one",
    )


def test_composition_reports_everything_at_once():
    texts = ["-gfx906:xnack+", "-gfx906", "-gfx906", "-gfx906:xnack-", "-gfx908:xnack+", "-"]
    ids = [BundleEntryID.parse(HIP + text) for text in texts]
    with pytest.raises(EntryIDError) as caught:
        check_composition(ids)
    duplicate, plus, minus = caught.value.problems
    assert duplicate.startswith("Duplicate targets are not allowed")
    assert plus == (
        f"Cannot bundle inputs with conflicting targets: '{HIP}-gfx906' and "
        f"'{HIP}-gfx906:xnack+', set 'xnack' in both or in neither"
    )
    assert "'hip-amdgcn-amd-amdhsa--gfx906:xnack-'" in minus


@pytest.mark.parametrize(
    "texts",
    [
        [HIP + "-gfx906:xnack+", HIP + "-gfx906:xnack-", HIP + "-gfx908", HIP + "-"],
        [HIP + "-gfx906", "hipv4-amdgcn-amd-amdhsa--gfx906:xnack+"],
        [HIP + "-gfx906", "openmp-amdgcn-amd-amdhsa--gfx906:xnack+"],
        [HIP + "-gfx906", "hip-amdgcn-amd-amdpal--gfx906:xnack+"],
    ],
)
def test_valid_compositions_pass(texts):
    """Signs may differ, and kinds, triples and processors do not meet in one group."""
    ids = [BundleEntryID.parse(text) for text in texts]
    assert find_conflicts(ids) == ()
    check_composition(ids)
