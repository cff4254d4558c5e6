#include "crashsafe/torch/saved_tensors.h"

#include "crashsafe/platform/large.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/python/python_objects.h"
#include "crashsafe/torch/torch_objects.h"

#include <cstring>

namespace pytracer::crashsafe {
namespace {

constexpr uint32_t kNodes = 4096, kSeenSlots = 2 * kNodes, kEdges = 1024;
constexpr uint64_t kLeastNode = 64, kMostNode = 2048, kMostSaved = 64 << 10, kMostObject = 512;

// Static: too large for the handler's stack. One thread reports at a time.
PYTRACER_LARGE struct {
  uint64_t nodes[kNodes];
  uint32_t distance[kNodes], count, next;
  uint64_t seen[kSeenSlots];
} graph;

void add(uint64_t node, uint32_t distance) {
  if (node == 0 || node % 8 != 0 || graph.count == kNodes) return;
  uint64_t at = (node >> 4) * 0x9E3779B97F4A7C15ull >> 51;
  static_assert(kSeenSlots == 1 << 13);
  while (graph.seen[at] != 0) {
    if (graph.seen[at] == node) return;
    at = (at + 1) % kSeenSlots;
  }
  graph.seen[at] = node;
  graph.nodes[graph.count] = node;
  graph.distance[graph.count++] = distance;
}

void add_next(uint64_t node, uint32_t distance) {
  uint64_t ends[2], edge_bytes = torch_offsets()->edge_bytes;
  if (edge_bytes == 0 || !read_bytes(ends, node + torch_offsets()->node_edges, sizeof ends)) return;
  if (ends[1] < ends[0] || ends[1] - ends[0] > kEdges * edge_bytes) return;
  for (uint64_t edge = ends[0]; edge < ends[1]; edge += edge_bytes) add(word_at(edge), distance);
}

template <class Found>
bool scan(uint64_t from, uint64_t nbytes, bool lists, const Found& found) {
  uint64_t before = 0;
  for (uint64_t at = from; at < from + nbytes; at += 8) {
    uint64_t word = 0;
    if (!read_value(word, at)) return true;
    if (word != 0 && word != before) {
      if (uint64_t base = base_of_word(word); base != 0 && !found(base)) return false;
    }
    // A node may keep a list of tensors: beginning and end of a vector lie side by side.
    if (lists && before != 0 && before % 8 == 0 && word > before && word - before <= kMostSaved && word % 8 == 0 &&
        !scan(before, word - before, false, found))
      return false;
    before = word;
  }
  return true;
}

// A node written in Python keeps its tensors in its Python object. 0: it is not one.
uint64_t python_object_of(uint64_t node, uint64_t nbytes, uint64_t& type) {
  for (uint64_t at = node; at < node + nbytes; at += 8) {
    uint64_t object = word_at(at);
    type = object % 8 == 0 ? type_of(object) : 0;
    if (type != 0 && type % 8 == 0 && derives_from(type, torch_offsets()->function_type)) return object;
  }
  type = 0;
  return 0;
}

// The size of a node, by its block in the heap; 0: unknown, and memory behind it would belong to another object.
uint64_t size_of(uint64_t node) {
  if (!torch_offsets()->chunks_are_sized) return 0;
  uint64_t nbytes = (word_at(node - 8) & ~7ull) - 8;
  return nbytes >= kLeastNode && nbytes <= kMostNode ? nbytes : 0;
}

}  // namespace

void begin_graph() noexcept { memset(&graph, 0, sizeof graph); }

void add_to_graph(uint64_t node) noexcept { add(node, 0); }

void walk_graph(bool (*found)(const Saved&)) noexcept {
  for (; graph.next < graph.count; graph.next++) {
    uint64_t node = graph.nodes[graph.next], nbytes = size_of(node);
    Saved saved{node, 0, 0, graph.distance[graph.next]};
    auto here = [&](uint64_t base) {
      saved.base = base;
      return found(saved);
    };
    if (nbytes > 8 && !scan(node + 8, nbytes - 8, true, here)) return;
    if (uint64_t object = python_object_of(node, nbytes, saved.python_type); object != 0) {
      uint64_t size = word_at(saved.python_type + static_cast<uint64_t>(python_objects()->type_size));
      if (!scan(object + 16, size < kMostObject ? size : kMostObject, true, here)) return;
    }
    add_next(node, saved.distance + 1);
  }
}

}  // namespace pytracer::crashsafe
