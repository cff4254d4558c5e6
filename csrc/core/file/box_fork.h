// The black box over fork: the file stays the parent's, the child gets a copy of what it needs.
#pragma once

namespace pytracer::core {

/// The journal holds what a forked child has in common with this process; the child keeps that.
void note_common_facts() noexcept;

/// In a forked child: its parent's black box becomes private memory, with the journal and the live storages where the parent has tables
/// (`copied`), otherwise with the common facts alone. False when there is no memory for that: empty_box() is all that is left.
bool leave_box_to_parent(bool& copied) noexcept;

/// In a forked child: the parent's mappings become empty private memory, which costs no address space. False: that is refused, too, and
/// g_box shows a black box without regions.
bool empty_box() noexcept;

}  // namespace pytracer::core
