"""Frozen data classes that take no time to define. They are the standard library's in every way that can be seen, but
for the code that it writes and compiles for each of them, and for the libraries that it loads to do so: half of what
`size` would take to answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass, is_dataclass, replace
else:

    def dataclass(cls: type | None = None, *, frozen: bool = True, kw_only: bool = False) -> Any:
        """A class of fields, as dataclasses.dataclass(frozen=True) makes it. Fields cannot be changed."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, kw_only=kw_only)
        names = tuple(cls.__annotations__)
        cls.__record__ = dict.fromkeys(names) | {name: vars(cls)[name] for name in names if name in vars(cls)}
        cls.__needed__ = frozenset(name for name in names if name not in vars(cls))
        cls.__match_args__ = () if kw_only else names
        cls.__checked__ = hasattr(cls, "__post_init__")
        for method in (__init__, __eq__, __hash__, __repr__, __setattr__, __delattr__):
            if method.__name__ not in vars(cls):
                setattr(cls, method.__name__, method)
        for name in ("__dataclass_fields__", "__dataclass_params__", "__signature__"):
            setattr(cls, name, Later(name))
        return cls

    def __init__(self: object, /, *args: Any, **given: Any) -> None:
        cls = type(self)
        if args:
            given = named(cls, args, given)
        values = {**cls.__record__, **given}
        if absent := cls.__needed__ - given.keys():
            raise TypeError(f"{cls.__name__}() needs {', '.join(sorted(absent))}")
        if len(values) > len(cls.__record__):
            raise TypeError(f"{cls.__name__}() has no {', '.join(sorted(given.keys() - cls.__record__.keys()))}")
        self.__dict__.update(values)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()

    def named(cls: Any, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
        """The fields given by position too, by their names."""
        if len(args) > len(cls.__match_args__):
            raise TypeError(f"{cls.__name__}() takes {len(cls.__match_args__)} values by position, not {len(args)}")
        by_place = dict(zip(cls.__match_args__, args, strict=False))
        if twice := sorted(by_place.keys() & given.keys()):
            raise TypeError(f"{cls.__name__}() got {', '.join(twice)} twice")
        return by_place | given

    def __eq__(self: object, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self: object) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __setattr__(self: object, name: str, value: object) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self: object, name: str) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")

    class Later:
        """What only other libraries ask of a class (dataclasses.fields, inspect.signature): made when they do."""

        def __init__(self, name: str) -> None:
            self.name = name

        def __get__(self, _: object, cls: Any) -> Any:
            import dataclasses
            import inspect

            fields = [
                (name, kind, *(() if name in cls.__needed__ else (dataclasses.field(default=cls.__record__[name]),)))
                for name, kind in cls.__annotations__.items()
            ]
            twin = dataclasses.make_dataclass(
                cls.__name__, fields, frozen=True, kw_only=not cls.__match_args__ and bool(fields)
            )
            twin.__signature__ = inspect.signature(twin)
            setattr(cls, self.name, vars(twin)[self.name])
            return getattr(cls, self.name)

    def is_dataclass(part: object) -> bool:
        """Whether this is a class of fields, or one of its objects; of these or of the standard library's."""
        return hasattr(part, "__record__") or hasattr(part, "__dataclass_fields__")

    def replace(part: Any, /, **changes: Any) -> Any:
        """The same with other values in these fields."""
        cls = type(part)
        if getattr(cls, "__checked__", True):  # so are the standard library's
            return cls(**{**vars(part), **changes})
        new = object.__new__(cls)
        values = new.__dict__
        values.update(part.__dict__)
        values.update(changes)
        return new if len(values) == len(cls.__record__) else cls(**values)  # which says what it does not have


def fields_of(part: object) -> tuple[str, ...]:
    """The names of a part's fields, in their order; none of what is no data class."""
    known: dict[str, object] | None = getattr(part, "__record__", None)
    return tuple(getattr(part, "__dataclass_fields__", ()) if known is None else known)


__all__ = ["dataclass", "fields_of", "is_dataclass", "replace"]
