// Unwind tables of code that is made at run time: by compilers such as LLVM's, which register them with the process's libgcc_s.
#pragma once

namespace pytracer::recorder {

/// Without preload nobody passes here to register any: the process's libgcc_s, loaded if need be, walks its stacks from now on.
void use_libgcc_s() noexcept;

}  // namespace pytracer::recorder
