// The minor version of torch that this library is built for, such as "2.13".
#pragma once
#include <torch/version.h>

namespace pytracer::hooks {

#define PYTRACER_TEXT_OF(number) #number
#define PYTRACER_TEXT(number) PYTRACER_TEXT_OF(number)
constexpr const char kTorchMinor[] = PYTRACER_TEXT(TORCH_VERSION_MAJOR) "." PYTRACER_TEXT(TORCH_VERSION_MINOR);
#undef PYTRACER_TEXT
#undef PYTRACER_TEXT_OF

}  // namespace pytracer::hooks
