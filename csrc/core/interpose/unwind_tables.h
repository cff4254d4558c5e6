// Unwind tables of code that is made at run time: by compilers such as LLVM's, which register them with the process's libgcc_s.
#pragma once

namespace pytracer::core {

/// Without preload registrations are not intercepted: the process's libgcc_s, loaded if need be, walks its stacks from now on.
void use_libgcc_s() noexcept;

}  // namespace pytracer::core
