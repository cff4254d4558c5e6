// Classes of autograd nodes.
#pragma once
#include <cstdint>

namespace torch::autograd {
struct Node;
}

namespace pytracer::hooks {

/// Name of a node's class without allocating: mangled C++ name, or tp_name of a Python class.
const char* node_class(const torch::autograd::Node& node, bool& is_python) noexcept;

/// The journal id of a node's class; 0: the journal is full.
uint32_t intern_node(const torch::autograd::Node& node);

}  // namespace pytracer::hooks
