"""What `pytracer where` answers, as plain data; docs/reference/report.md describes it. Keys as in `job.py`."""

from __future__ import annotations

from pytracer.report.job import Bucket, Fsdp, Neighbor, Part, Region, Signal, StorageReport

SCHEMA = "pytracer-where"
VERSION = 1


class PointedBy(Part, frozen=True):
    """Something that held an address of the same storage, or this very address.

    `what`: a register, a word of the stack ("stack+0x18"), of memory near a register ("[rdi+0x10]"), or a collective's
    buffer. `says` completes "`what` ..."; `addr` is what it held.
    """

    what: str | None = None
    addr: str | None = None
    says: str | None = None


class AddressReport(Part, frozen=True):
    """One address, explained. `asked` is what was asked for; `says` completes "`addr` ..."."""

    asked: str | None = None
    addr: str | None = None
    kind: str | None = None
    says: str | None = None
    storage: StorageReport | None = None
    bucket: Bucket | None = None
    fsdp: Fsdp | None = None
    region: Region | None = None
    neighbors: list[Neighbor] | None = None
    earlier_lives: list[StorageReport] | None = None
    pointed_by: list[PointedBy] | None = None


class WhereProcess(Part, frozen=True):
    """The process whose addresses they are. `chosen` says why it is this one, when nobody named it."""

    pid: int | None = None
    rank: int | None = None
    role: str | None = None
    host: str | None = None
    status: str | None = None
    signal: Signal | None = None
    ended: int | None = None
    chosen: str | None = None


class WhereReport(Part, frozen=True):
    """The whole. `missing`: what is not known of the process, so that an answer may say less than it could."""

    schema: str = SCHEMA
    version: int = VERSION
    directory: str | None = None
    process: WhereProcess | None = None
    addresses: list[AddressReport] | None = None
    missing: list[str] | None = None
