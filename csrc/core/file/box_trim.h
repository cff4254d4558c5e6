// The black box when the process calls exit(): disk blocks that no reader needs are given back.
#pragma once

namespace pytracer::core {

/// This process is one of many of its kind: when it exits normally, its black box keeps only who it was, how it ended, records and collectives.
void trim_when_done() noexcept;

/// Whether the black box has more than who the process is: threads, storages.
bool has_recorded() noexcept;

/// Gives back disk blocks: of a process that recorded nothing of its own, and of one that trims when done and exits normally. Killed in
/// between, the black box holds more, and nothing wrong.
void trim_at_exit(int code) noexcept;

}  // namespace pytracer::core
