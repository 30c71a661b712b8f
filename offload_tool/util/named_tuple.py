"""``typing.NamedTuple`` without ``typing``, which takes 4 of the 35 ms in which a bundle is made.

Modules that such short commands load take what they need of ``typing`` for type checkers alone, and
this base from here: it is the same to those who read a class, check its types or use it. All
annotations are texts (``from __future__ import annotations``), so none is evaluated.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from collections import namedtuple

    _KEPT = {"__new__", "__init__", "__slots__", "__getnewargs__", "_fields", "_field_defaults"}
    _KEPT |= {"_make", "_replace", "_asdict"}

    class _Maker(type):
        """Makes a class of the annotated names of its body; those with values have defaults."""

        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            kinds = body.pop("__annotations__", {})
            optional = [field for field in kinds if field in body]
            if [*kinds][len(kinds) - len(optional) :] != optional:
                raise TypeError(f"{name}: after {optional[0]!r}, each name needs a default")
            if len(bases) > 1 or not _KEPT.isdisjoint(body):
                wrong = [base.__name__ for base in bases[1:]] + sorted(_KEPT.intersection(body))
                raise TypeError(f"{name}: {', '.join(wrong)} cannot be given to a NamedTuple")
            values = [body.pop(field) for field in optional]
            made = namedtuple(name, kinds, defaults=values, module=body.pop("__module__"))
            made.__annotations__ = made.__new__.__annotations__ = kinds
            for key, value in body.items():
                setattr(made, key, value)
            return made

    class NamedTuple(metaclass=_Maker):
        """The base of classes that are tuples whose values have names."""


__all__ = ["NamedTuple"]
