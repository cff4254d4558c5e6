// What the nodes of an autograd graph save for backward, found by a walk along its edges.
#pragma once
#include <cstdint>

namespace pytracer::crashsafe {

/// Forgets the autograd graph of an earlier report.
void begin_graph() noexcept;

/// A node where the walk begins. Nodes known already are left out.
void add_to_graph(uint64_t node) noexcept;

/// A storage that an autograd node saves. `python_type`: the class of a node that is written in Python, else 0.
struct Saved {
  uint64_t node, base, python_type;
  uint32_t distance;
};

/// Walks, nearest nodes first, and calls `found` for each storage until it returns false.
void walk_graph(bool (*found)(const Saved&)) noexcept;

}  // namespace pytracer::crashsafe
