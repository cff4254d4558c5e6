// Python's code objects as entries of the journal, by address while they are alive.
#pragma once
#include "crashsafe/python/python_stack.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace pytracer::hooks {

constexpr uint32_t kIdMask = 0x7fffffff, kInLibrary = 0x80000000;  // an id with the flag: its file belongs to torch or to us

/// Changes when a code object is destroyed: caches of ids expire. Hidden here, too: -fvisibility is for definitions, and a storage's path
/// would load the address first.
extern std::atomic<uint32_t> code_generation __attribute__((visibility("hidden")));

/// The journal id of a running code object, with kInLibrary; 0: the journal is full. Keeps no reference and needs no GIL.
uint32_t intern_code(uint64_t code);

/// Notes the directories of libraries and where the running CPython keeps things, and follows the destruction of code objects. With the
/// GIL held.
void follow_code_objects(const std::vector<std::string>& library_directories, const crashsafe::PythonOffsets& offsets);

}  // namespace pytracer::hooks
