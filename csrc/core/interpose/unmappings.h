// munmap(): who gave memory back, for a fault in the hole. Memory that is mapped and unmapped past torch's allocators - files, other
// libraries' buffers - has no other trace.
#pragma once

namespace pytracer::core {

/// The function behind ours, before anybody else's constructor runs where possible: until then calls go to the kernel.
void resolve_unmappings() noexcept;

}  // namespace pytracer::core
