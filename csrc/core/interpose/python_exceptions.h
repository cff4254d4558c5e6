// Exceptions that reach the top of a Python program, from its very start: before torch is imported, and where it never is.
#pragma once
#include <cstdint>

namespace pytracer::core {

/// Before main(): the interpreter will be watched once it has started. Does nothing where CPython is not linked, or of no known version.
void watch_python_exceptions() noexcept;

/// The Python half has recorded this exception, an object's address: it is not recorded once more on its way to the default hook.
void python_exception_recorded(uint64_t exception) noexcept;

}  // namespace pytracer::core
