// Shared by the interposed functions.
#pragma once

#define PYTRACER_EXPORT extern "C" __attribute__((visibility("default")))

namespace pytracer::core {

/// The constructor started recording: the interposed functions do more than forward.
extern constinit bool preloaded;

}  // namespace pytracer::core
