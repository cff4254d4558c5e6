"""The answer of `pytracer where`, as plain data. Conventions as in `job.py`."""

from __future__ import annotations

from pytracer.report.job import Bucket, Fsdp, Neighbor, Part, Region, Signal, StorageReport

SCHEMA = "pytracer-where"
VERSION = 1


class PointedBy(Part, frozen=True):
    """A pointer to an address, or into its storage."""

    #: a register, "stack+0x18", "[rdi+0x10]" (memory near a register's target), or a collective's buffer
    what: str | None = None
    addr: str | None = None  #: what it held
    says: str | None = None  #: completes "`what` ..."


class AddressReport(Part, frozen=True):
    """One address, explained."""

    asked: str | None = None  #: the argument, as given
    addr: str | None = None
    kind: str | None = None
    says: str | None = None  #: completes "`addr` ..."
    storage: StorageReport | None = None
    bucket: Bucket | None = None
    fsdp: Fsdp | None = None
    region: Region | None = None
    neighbors: list[Neighbor] | None = None
    earlier_lives: list[StorageReport] | None = None
    pointed_by: list[PointedBy] | None = None  #: at most 16


class WhereProcess(Part, frozen=True):
    """The process that the addresses belong to."""

    pid: int | None = None
    rank: int | None = None
    role: str | None = None
    host: str | None = None
    status: str | None = None
    signal: Signal | None = None
    ended: int | None = None
    chosen: str | None = None  #: why this process, when neither --rank nor --pid was given


class WhereReport(Part, frozen=True):
    """The answer of `pytracer where`."""

    schema: str = SCHEMA
    version: int = VERSION
    directory: str | None = None
    process: WhereProcess | None = None
    addresses: list[AddressReport] | None = None
    missing: list[str] | None = None  #: what is unknown of the process, so that answers may be incomplete
