// What this library is built for: a minor version of torch, such as "2.13", or the identity of one torch, which `pytracer build` defines.
#pragma once
#include <torch/version.h>

namespace pytracer::hooks {

#define PYTRACER_TEXT_OF(number) #number
#define PYTRACER_TEXT(number) PYTRACER_TEXT_OF(number)
#ifdef PYTRACER_BUILT_FOR
constexpr const char kTorchVersion[] = PYTRACER_BUILT_FOR;
#else
constexpr const char kTorchVersion[] = PYTRACER_TEXT(TORCH_VERSION_MAJOR) "." PYTRACER_TEXT(TORCH_VERSION_MINOR);
#endif
#undef PYTRACER_TEXT
#undef PYTRACER_TEXT_OF

}  // namespace pytracer::hooks
