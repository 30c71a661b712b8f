"""Frozen classes behave as the standard library's frozen dataclasses with slots do."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, replace

import pytest

from offload_tool.util.frozen import as_dict, frozen, replaced


@frozen
class Place:
    """Of a file."""

    path: str
    offset: int
    size: int = 0
    """Bytes."""
    note: str = "none"

    @property
    def end(self) -> int:
        return self.offset + self.size


@frozen
class Name:
    text: str


class _Judge:
    """Where the class of the same name is the standard library's."""

    Place = dataclass(frozen=True, slots=True)(
        type(
            "Place", (), {"__annotations__": dict(Place.__annotations__), "size": 0, "note": "none"}
        )
    )


CALLS = [
    ((), {}),
    (("a",), {}),
    (("a", 1), {}),
    (("a", 1, 2, "b"), {}),
    (("a", 1, 2, "b", 5), {}),
    (("a",), {"offset": 1}),
    ((), {"offset": 1, "path": "a", "note": "n"}),
    (("a", 1), {"path": "a"}),
    (("a", 1), {"colour": "red"}),
]


@pytest.mark.parametrize(("values", "named"), CALLS)
def test_calls(values: tuple[object, ...], named: dict[str, object]) -> None:
    """What a call gives, or that it is refused, is as with the standard library's."""

    def outcome(cls: type) -> str:
        try:
            return repr(cls(*values, **named))
        except TypeError:
            return "refused"

    assert outcome(Place) == outcome(_Judge.Place)


def test_values() -> None:
    """Equal values are equal objects with one hash; another class's are not."""
    assert Place("a", 1) == Place("a", 1, 0)
    assert hash(Place("a", 1)) == hash(Place("a", 1, 0))
    assert Place("a", 1) != Place("a", 2)
    assert Place("a", 1) != _Judge.Place("a", 1)
    assert Name("a") == Name("a") != Name("b")
    assert {Name("a"), Name("a")} == {Name("a")}
    assert Place("a", 2, 3).end == 5


def test_unchangeable() -> None:
    """No value can be set, added or deleted; the standard library raises the same family."""
    place = Place("a", 1)
    for change in (
        lambda: setattr(place, "path", "b"),
        lambda: setattr(place, "colour", "red"),
        lambda: delattr(place, "path"),
    ):
        with pytest.raises(AttributeError):
            change()
    assert issubclass(FrozenInstanceError, AttributeError)
    assert not hasattr(place, "__dict__")


def test_copies() -> None:
    """Copies, pickled ones and those with a value replaced are of the same class."""
    place = Place("a", 1, 2, "b")
    assert copy.deepcopy(place) == copy.copy(place) == place
    assert pickle.loads(pickle.dumps(place)) == place
    assert replaced(place, size=7) == Place("a", 1, 7, "b")
    assert as_dict(place) == asdict(_Judge.Place("a", 1, 2, "b"))
    assert repr(replaced(place, size=7)) == repr(replace(_Judge.Place("a", 1, 2, "b"), size=7))
    with pytest.raises(TypeError):
        replaced(place, colour="red")
