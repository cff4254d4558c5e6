// The native stack of the crashed thread, and the images that its frames lie in. Raw addresses; names come later.
#pragma once
#include <ucontext.h>

namespace pytracer::crashsafe {

/// Loads what the unwinder binds lazily, so that the handler never does. Call once, outside the handler.
void warm_up_unwinder() noexcept;

/// Crash step: walks by call-frame information. libgcc may fault on a damaged stack: a step of its own.
void write_native_stack(ucontext_t* context) noexcept;

/// Crash step: when that gave little, frame pointers, and at last a scan of the stack for return addresses.
void write_native_fallback(const ucontext_t* context) noexcept;

/// Crash step: path, load bias and build-id of every image that has a frame.
void write_images() noexcept;

/// Crash step: /proc/self/maps as it is.
void write_maps() noexcept;

}  // namespace pytracer::crashsafe
