"""Immutable data classes, created without compiling source code.

Type checkers and users can treat ``@frozen`` as ``@dataclasses.dataclass(frozen=True,
slots=True)``::

    @frozen
    class Location:
        path: str
        offset: int = 0

``dataclasses`` generates and compiles source for each class, and imports ``inspect``. A drop-in for
one of LLVM's tools has 25 such classes and runs for 30 ms; ``dataclasses`` would take 20 of them.
These classes share their methods.
"""

from __future__ import annotations

from operator import attrgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from inspect import Signature
    from typing import Any, ClassVar, TypeVar

    from typing_extensions import dataclass_transform

    _AnyClass = TypeVar("_AnyClass")
else:

    def dataclass_transform(**_):
        """Describe the decorator to type checkers."""
        return lambda decorator: decorator


class _SignatureOf:
    """The signature of a class, for ``help()`` and the reference."""

    def __get__(self, _: object, owner: type[_Frozen]) -> Signature:
        from inspect import Parameter, Signature

        kind = Parameter.POSITIONAL_OR_KEYWORD
        return Signature(
            [
                Parameter(name, kind, default=owner._defaults.get(name, Parameter.empty))
                for name in owner.__match_args__
            ]
        )


class _Frozen:
    """Common base of the classes."""

    __slots__ = ()
    __signature__ = _SignatureOf()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    """The names of the fields, in order."""
    _defaults: ClassVar[Mapping[str, object]] = {}
    _setters: ClassVar[tuple[Callable[[Any, object], None], ...]] = ()
    """Setters of the fields, which bypass `__setattr__`."""
    _key: ClassVar[attrgetter[object]]
    """Returns the values to compare."""

    def __init__(self, *values: object, **named: object) -> None:
        if named or len(values) != len(self._setters):
            values = self._completed(values, named)
        for setter, value in zip(self._setters, values):  # noqa: B905 - a check for each would cost
            setter(self, value)

    @classmethod
    def _completed(
        cls, values: tuple[object, ...], named: Mapping[str, object]
    ) -> tuple[object, ...]:
        """Return all values in field order; raise TypeError for wrong ones."""
        names = cls.__match_args__
        if len(values) > len(names):
            raise TypeError(f"{cls.__name__}: {len(values)} values for {len(names)} names")
        rest = names[len(values) :]
        if wrong := [name for name in named if name not in rest]:
            raise TypeError(f"{cls.__name__}: {wrong[0]!r} is given twice, or unknown")
        found = {**cls._defaults, **named} if named else cls._defaults
        try:
            return (*values, *[found[name] for name in rest])
        except KeyError:
            missing = ", ".join(name for name in rest if name not in found)
            raise TypeError(f"{cls.__name__}: {missing} missing") from None

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self._key(self) == self._key(other)

    def __hash__(self) -> int:
        return hash(self._key(self))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__qualname__}({values})"

    def __reduce__(self) -> tuple[type[_Frozen], tuple[object, ...]]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    def __setattr__(self, name: str, _: object) -> None:
        raise AttributeError(f"cannot assign to {name!r}, which does not change")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete {name!r}, which does not change")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[_AnyClass]) -> type[_AnyClass]:
    """Return a frozen class with the fields of `cls`, which has no base; defaults are immutable."""
    names = tuple(cls.__annotations__)
    omitted = {*names, "__dict__", "__weakref__"}
    body = {name: value for name, value in cls.__dict__.items() if name not in omitted}
    body["__slots__"] = body["__match_args__"] = names
    body["_defaults"] = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    new_class: Any = type(cls.__name__, (_Frozen,), body)
    new_class._setters = tuple(getattr(new_class, name).__set__ for name in names)
    new_class._key = attrgetter(*names)
    return new_class  # type: ignore[no-any-return]


def as_dict(instance: Any) -> dict[str, Any]:
    """Return the values by field name, without converting them."""
    return {name: getattr(instance, name) for name in instance.__match_args__}


def replaced(old: _AnyClass, **changes: object) -> _AnyClass:
    """Return a copy with some fields changed."""
    return type(old)(**{**as_dict(old), **changes})
