"""The ring of tensors that FSDP's operators worked on."""

from __future__ import annotations

import struct

from pytracer.blackbox import schema
from pytracer.blackbox.schema import Region, TensorRole
from pytracer.decode.recording.file import BoxFile
from pytracer.decode.recording.journal import Journal
from pytracer.decode.types.snapshot import ScopedTensor

_SLOT = struct.Struct("<IIQQIIIIQ")
_ROLES = {role.value: role.name.lower() for role in TensorRole}


def scoped_tensors(box: BoxFile, journal: Journal) -> tuple[ScopedTensor, ...]:
    """What can be read, oldest first; slots that are being written are left out."""
    extent = box.region(Region.SCOPED_TENSORS, schema.SCOPED_TENSOR.nbytes)
    if extent is None:
        return ()
    found = [
        ScopedTensor(addr, nbytes, _ROLES[role], journal.scope(scope_id), index, count, epoch, mono_ns)
        for order, role, addr, nbytes, scope_id, epoch, index, count, mono_ns in box.unpack(extent, _SLOT)
        if order != 0 and role in _ROLES
    ]
    return tuple(sorted(found, key=lambda item: (item.mono_ns, item.index)))
