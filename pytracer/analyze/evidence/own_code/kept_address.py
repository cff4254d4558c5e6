"""What has kept the address of memory that was freed, and not the tensor: by the program's own source."""

from __future__ import annotations

from pytracer.analyze.evidence.own_code.address_of_temporary import TemporaryAddress, address_of_temporary
from pytracer.analyze.evidence.own_code.given_address import GivenAddress, given_address
from pytracer.analyze.evidence.own_code.kept_pointer import KeptPointer, kept_pointer
from pytracer.analyze.evidence.own_code.returned_address import ReturnedAddress, returned_address
from pytracer.analyze.evidence.own_code.temporary_pointer import ReturnedPointer, TemporaryPointer, temporary_pointer
from pytracer.analyze.view import ProcessView

KeptAddress = TemporaryPointer | ReturnedPointer | KeptPointer | ReturnedAddress | TemporaryAddress | GivenAddress


def kept_address(view: ProcessView) -> KeptAddress | None:
    """Of the freed storage at the fault."""
    return (
        _temporary(view)
        or kept_pointer(view)
        or returned_address(view)
        or address_of_temporary(view)
        or given_address(view)
    )


def by_other_thread(view: ProcessView) -> bool:
    """Whether a thread with Python of its own freed it, and not the one that used it or opened its parallel region."""
    storage, crash = view.place.storage if view.place else None, view.crash
    if storage is None or crash is None or not storage.freed_thread:
        return False
    opener = view.region_opener.tid if view.region_opener is not None and view.region_python else None
    user = crash.tid if crash.python_stack else opener
    return user is not None and storage.freed_thread not in (crash.tid, user)


def _temporary(view: ProcessView) -> TemporaryPointer | ReturnedPointer | None:
    """Where the memory was made and freed by the line that is running: within the native function's own call."""
    storage, frame = view.storage, view.python_frame
    made = storage.allocated if storage is not None else None
    freed = storage.freed if storage is not None else None
    if made is None or freed is None or frame is None or by_other_thread(view):
        return None
    places = [made.place, freed.place]
    lines = {place.line if place is not None else None for place in places}
    return temporary_pointer(view) if lines == {frame.line} else None
