"""Attributes of others that are replaced, and what is left of that afterwards: nothing."""

import pytest

from pytracer.record.bootstrap.patches import Patches


class Base:
    def run(self) -> str:
        return "base"


class Derived(Base):
    pass


def test_an_inherited_attribute_is_inherited_again() -> None:
    patches = Patches()
    patches.replace(Derived, "run", lambda self: "replaced")
    assert Derived().run() == "replaced"
    patches.put_back()
    assert "run" not in Derived.__dict__
    assert Derived().run() == "base"


def test_what_others_replaced_since_stays() -> None:
    patches = Patches()
    patches.replace(Derived, "run", lambda self: "replaced")
    Derived.run = lambda self: "theirs"  # type: ignore[method-assign]
    patches.put_back()
    assert Derived().run() == "theirs"
    del Derived.run


def test_what_is_not_there_is_not_made() -> None:
    with pytest.raises(AttributeError):
        Patches().replace(Derived, "walk", lambda self: None)
    assert not hasattr(Derived, "walk")
