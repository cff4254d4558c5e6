// Tests the offsets of CPython's objects on objects of the caller before they are used.
#include "core/core.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/python/python_objects.h"
#include "crashsafe/python/python_stack.h"

namespace pytracer::core {
namespace {

using namespace crashsafe;

constexpr uint32_t kCell = 1, kList = 2, kTuple = 4, kDict = 8, kAttributes = 16, kMoreAttributes = 32, kAllWays = 63;
constexpr uint32_t kLocals = 32;

bool holds(const Table& table, uint64_t wanted) {
  uint64_t key = 0, value = 0;
  PythonText text{};
  for (uint64_t i = 0; i < table.count; i++)
    if (entry_of(table, i, key, value) && value == wanted) return python_text(key, text);
  return false;
}

uint32_t way_to(uint64_t wanted, uint64_t value, bool in_cell, uint32_t known) {
  uint64_t type = type_of(value), first = 0, count = 0;
  Table table{};
  if (in_cell) return value == wanted ? kCell : 0;
  if (items_of(value, first, count)) {
    if (count == 0 || word_at(first + (count - 1) * sizeof(uint64_t)) != wanted) return 0;
    return type == python_types().list ? kList : kTuple;
  }
  if (type == python_types().dict) return table_of_dict(value, table) && holds(table, wanted) ? kDict : 0;
  if (!table_of_attributes(value, type, table) || !holds(table, wanted)) return 0;
  return (known & kAttributes) != 0 ? kMoreAttributes : kAttributes;
}

}  // namespace
}  // namespace pytracer::core

extern "C" int pytracer_check_objects(uint64_t wanted) {
  using namespace pytracer::core;
  FrameView frame{};
  uint32_t found = 0;
  CheckedReads reads;
  if (!reads.possible() || python_objects() == nullptr || own_frames(&frame, 1) != 1) return 0;
  uint64_t name = 0, value = 0;
  bool in_cell = false;
  PythonText text{};
  for (uint32_t i = 0; i < kLocals && local_of(frame.frame, frame.code, i, name, value, in_cell); i++)
    if (value != 0 && python_text(name, text)) found |= way_to(wanted, value, in_cell, found);
  if (found != kAllWays) distrust_python_objects();
  return found == kAllWays;
}
