// The black box when the process calls exit(): disk blocks that no reader needs are released.
#pragma once

namespace pytracer::core {

/// This process is one of many of its kind: when it exits with status 0, its black box keeps only identity, exit, records and collectives.
void trim_when_done() noexcept;

/// Whether the black box has more than who the process is: threads, storages.
bool has_recorded() noexcept;

/// Releases disk blocks: of a process that recorded nothing itself, and of one that trims when done and exits with 0. Killed in
/// between, the black box holds more, and nothing wrong.
void trim_at_exit(int code) noexcept;

}  // namespace pytracer::core
