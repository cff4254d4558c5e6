// What the interposed functions share.
#pragma once

#define PYTRACER_EXPORT extern "C" __attribute__((visibility("default")))

namespace pytracer::recorder {

/// The constructor started recording: the interposed functions do more than pass on.
extern constinit bool preloaded;

}  // namespace pytracer::recorder
