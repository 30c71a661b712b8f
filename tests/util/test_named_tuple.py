"""Named tuples made without ``typing`` are what its own are."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing

import pytest

from offload_tool.util.named_tuple import NamedTuple


class Piece(NamedTuple):
    """Of a file."""

    source: str
    offset: int
    size: int = 0
    """Bytes."""

    @property
    def end(self) -> int:
        return self.offset + self.size

    def at(self, offset: int) -> Piece:
        return self._replace(offset=offset)


class Standard(typing.NamedTuple):
    """Of a file."""

    source: str
    offset: int
    size: int = 0


PIECE = Piece("f", 1, 2)


def test_is_a_tuple_with_names() -> None:
    """Values are found by name, by place, and by unpacking."""
    source, offset, size = PIECE
    assert (source, offset, size) == ("f", 1, 2) == PIECE == Standard("f", 1, 2)
    assert PIECE.source == PIECE[0] == "f"
    assert PIECE.end == 3
    assert PIECE.at(5) == ("f", 5, 2)
    assert hash(PIECE) == hash(("f", 1, 2))
    assert repr(PIECE) == "Piece(source='f', offset=1, size=2)"


def test_defaults_and_names() -> None:
    """A value left out has its default; one without a default is asked for."""
    assert Piece("f", offset=1) == ("f", 1, 0)
    with pytest.raises(TypeError, match="offset"):
        Piece("f")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown"):
        Piece("f", 1, unknown=1)  # type: ignore[call-arg]


def test_default_before_others_is_refused() -> None:
    """A default does not move to the last name, where another had it."""
    with pytest.raises(TypeError, match="after 'one'"):

        class Moved(NamedTuple):
            one: int = 1
            other: int  # type: ignore[misc]


def test_more_than_values_and_methods_is_refused() -> None:
    """Other bases, and what a tuple is made with, are refused by name instead of left out."""
    with pytest.raises(TypeError, match="int cannot be given"):

        class Mixed(NamedTuple, int):  # type: ignore[misc]
            one: int

    with pytest.raises(TypeError, match="__new__ cannot be given"):

        class Made(NamedTuple):
            one: int

            def __new__(cls) -> object:  # type: ignore[misc]
                return 1


def test_nothing_in_it() -> None:
    """A class without values is an empty tuple's."""

    class Empty(NamedTuple):
        pass

    assert Empty() == ()


def test_does_not_change() -> None:
    """No value is set, and there is no place for another."""
    with pytest.raises(AttributeError):
        PIECE.size = 3  # type: ignore[misc]


def test_is_copied_and_pickled() -> None:
    """Copies are equal, and of the same class."""
    for made in (copy.copy(PIECE), copy.deepcopy(PIECE), pickle.loads(pickle.dumps(PIECE))):
        assert made == PIECE
        assert type(made) is Piece


def test_is_described_as_the_standard_one() -> None:
    """What help and the reference show is the same."""
    ours, standard = (inspect.signature(each).parameters for each in (Piece, Standard))
    assert [*ours] == [*standard]
    assert [p.default for p in ours.values()] == [p.default for p in standard.values()]
    assert typing.get_type_hints(Piece) == typing.get_type_hints(Standard)
    assert Piece.__doc__ == Standard.__doc__
    assert Piece.__module__ == __name__
    assert Piece._fields == Standard._fields
    assert Piece._field_defaults == Standard._field_defaults
