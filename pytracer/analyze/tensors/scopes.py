"""Scopes, taken apart: what a thread was busy with when it called a collective."""

from __future__ import annotations

import msgspec

from pytracer._patterns import Pattern

_FSDP = Pattern(r"FSDP::(?P<step>\w+)(?: \((?P<unit>.*?)\))?(?: \[pg=(?P<ranks>\d+)\])?")
_HOOK = Pattern(r"DDP::comm_hook (?P<hook>.+) \((?P<module>.+) (?P<index>\d+)\)")
_JOIN = Pattern(r"DDP::join \((?P<module>.+)\)")


class UnitStep(msgspec.Struct, frozen=True):
    """A step of FSDP's, e.g. `all_gather`, for one unit; `ranks`: of its several groups, the one of that size."""

    step: str
    unit: str
    ranks: int | None


class HookCall(msgspec.Struct, frozen=True):
    """A communication hook that DDP called for one bucket."""

    hook: str
    module: str
    index: int


def unit_step(scope: str | None) -> UnitStep | None:
    """`FSDP::all_gather (layers.0)`."""
    found = _FSDP.fullmatch(scope) if scope else None
    if found is None:
        return None
    return UnitStep(found["step"], found["unit"] or "", int(found["ranks"]) if found["ranks"] else None)


def hook_call(scope: str | None) -> HookCall | None:
    """`DDP::comm_hook fp16_compress_hook (Net 0)`."""
    found = _HOOK.fullmatch(scope) if scope else None
    return HookCall(found["hook"], found["module"], int(found["index"])) if found else None


def joined_module(scope: str | None) -> str | None:
    """The DDP module of `DDP::join (Net)`."""
    found = _JOIN.fullmatch(scope) if scope else None
    return found["module"] if found else None
