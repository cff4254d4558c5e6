"""sparse-indices: a compressed sparse tensor has parts that nothing checked, and an operator follows them.

What: a refused memory access in Intel's product of a CSR or CSC tensor with a dense matrix, where the line that made
the sparse tensor is known and does not check it. Its plain indices (of CSR the columns) are recorded and go beyond the
rows of the dense matrix; or its pointers are recorded and end behind the entries; or the kernel read an index or a
value behind the last entry, which only the pointers lead to. Or the access left the values in that product, and their
memory has fewer than there are plain indices, at the number of which the pointers end; or torch was converting the
tensor (to_dense(), to_sparse_coo()), and the tensors that it was given have fewer values than plain indices, or
pointers that end beyond these.

Why it happens: torch.sparse_csr_tensor() checks its arguments only with check_invariants=True. Raw ids in place of
positions, offsets of a larger matrix, offsets in bytes in place of entries, or a value for each row in place of one for
each entry, make a tensor that looks right until something uses it.

What to do: correct the line that is named, where the indices are computed; check_invariants=True at the constructor
raises an error in place of the crash.

How it can be wrong: it is *certain* only where the recorded values lead to the access or are themselves impossible.
Where the pointers are not recorded, that they are wrong follows from what was read, and is *likely*. A tensor that was
right and was overwritten later looks the same.
"""

from __future__ import annotations

from msgspec import structs

from pytracer.analyze.evidence.at_fault import of_sparse
from pytracer.analyze.evidence.indices.compressed_facts import WrongPart
from pytracer.analyze.evidence.indices.compressed_parts import wrong_part
from pytracer.analyze.evidence.indices.part_words import part_advice, part_lines, part_name, part_summary
from pytracer.analyze.evidence.native.jumps import wild_jump
from pytracer.analyze.evidence.phrases import (
    access_verb,
    collective_evidence,
    fault_evidence,
    in_function,
    python_evidence,
)
from pytracer.analyze.naming import introduction
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.rules.fault import StorageFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_EXPLAINED = ("null", "near-null", "in-storage", "stack-guard", "stack")  # by other rules, whatever the indices are


class SparseIndices(StorageFaultRule[WrongPart]):
    """Fires where a part of a compressed sparse tensor is seen to lead out of what it counts."""

    id = "sparse-indices"
    needs = ("crash", "storages", "registers")
    absent = "no operator on a compressed sparse tensor that a line made unchecked was led astray by its parts"

    def judge(self, view: ProcessView) -> Judgement[WrongPart] | None:
        """See FaultRule."""
        if view.place is None or view.place.kind in _EXPLAINED or wild_jump(view) is not None:
            return None
        found = wrong_part(view)
        if found is None:
            return None
        return Judgement("out-of-bounds", "certain" if found.exact else "likely", (view,), found)

    def describe(self, job: JobView, judgement: Judgement[WrongPart]) -> Description:
        """See FaultRule."""
        view, found = judgement.views[0], judgement.found
        behind = of_sparse(found.source)
        if found.part == "values":
            behind = structs.replace(behind, elsewhere=())  # what the indices are made of is right
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} out of bounds{in_function(view)}: "
            f"{part_summary(view, found)}.",
            [
                fault_evidence(view),
                _evidence(found),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            part_advice(view, found),
            []
            if found.high is not None or found.part == "values"
            else ["the pointers themselves: only the entry that they led to is known"],
            explained=True,
            names_source=True,
            behind=structs.replace(behind, lines=(*part_lines(view, found), *behind.lines)),
        )


def _evidence(found: WrongPart) -> Evidence:
    name = part_name(found)
    if found.part == "values":
        words = f"the operator's tensors: {found.count} values for {found.limit} indices"
        return Evidence("index", words, tensor=found.source.name, value=found.count, limit=found.limit)
    if found.high is None:
        words = f"entry {found.entry} was read, of {found.limit}: the kernel takes it from the {name} alone"
    else:
        rest = f"must end at {found.limit}" if found.part == "pointers" else f"must be less than {found.limit}"
        words = f"the kernel's {name} are {found.low}..{found.high}, and {rest}"
    value = found.high if found.high is not None else found.entry
    return Evidence("index", words, tensor=found.source.name, value=value, limit=found.limit)
