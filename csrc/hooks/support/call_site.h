// Who is running on this thread: the Python line, or the autograd node. A few nanoseconds, no lock, no GIL, no allocation
// after a thread's first call.
#pragma once
#include "core/core.h"

#include <cstdint>
#include <string>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace pytracer::hooks {

/// A journal id and the place in it (schema.py: CODE, NODE or SITE).
using Who = pytracer_who;

/// With the GIL held. Files below `library_directories` are not the user's own.
void prepare_who(const std::vector<std::string>& library_directories);

/// For small storages: the innermost Python frame, or the running autograd node.
Who who_is_running() noexcept;

/// For large ones: both, and the first Python frame of the user's own besides.
Who who_is_running_in_detail() noexcept;

/// For guarded storages, which are few or slow anyway: up to kStackPlaces Python frames, and the node.
Who who_is_running_with_stack() noexcept;

/// An autograd node begins on the calling thread: until none is found running, it is worth asking which.
void node_begins() noexcept;

/// True when torch's thread-locals exist on the calling thread: asking for its node allocates nothing. For the crash handler.
bool can_ask_for_node() noexcept;

/// Name of a node's class without allocating: mangled C++ name, or tp_name of a Python class.
const char* node_class(const torch::autograd::Node& node, bool& is_python) noexcept;

}  // namespace pytracer::hooks
