// What CPython's objects contain, by checked reads: locals of a frame, items of lists, tuples and dicts, attributes.
// An object may be half built or change meanwhile: every count is bounded, and an inconsistency ends that one walk.
#pragma once
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/python/python_stack.h"

#include <cstdint>

namespace pytracer::crashsafe {

/// Offsets of one CPython minor version; printed by scripts/gen_python_offsets.py from that version's headers.
struct PythonObjects {
  int minor;
  long f_locals, f_globals, co_names, co_cells, co_free, size, tuple_items, list_items, cell_value, int_digits, type_name, type_base, type_flags,
      type_size, type_dict, type_keys, dict_keys, dict_values, keys_count, keys_indices, keys_log2_bytes, keys_kind, keys_size, values_first,
      managed_dict, managed_values, inline_values_flag, values_valid, managed_dict_flag;
};

/// Addresses of CPython's own types.
struct PythonTypes {
  uint64_t list, tuple, dict, cell, module, type, text, integer, truth, real;
  uint64_t nothing;  ///< None itself
};

/// Uses the row of this minor version from now on. False when there is none.
bool trust_python_objects(int minor, const PythonTypes& types) noexcept;

/// Stops using the offsets: a self-test failed.
void distrust_python_objects() noexcept;

/// The row and the types in use; null when none is trusted, or python_offsets() is not.
const PythonObjects* python_objects() noexcept;
const PythonTypes& python_types() noexcept;

/// 0 when it cannot be read.
uint64_t word_at(uint64_t addr) noexcept;
uint64_t type_of(uint64_t object) noexcept;

/// Where the items of a list or tuple lie; false for anything else.
bool items_of(uint64_t object, uint64_t& first, uint64_t& count) noexcept;

/// The value of an int of CPython; false for one that does not fit, or cannot be read. The caller knows the type.
bool whole_number(uint64_t object, int64_t& value) noexcept;

/// The bits of a float of CPython, and how many items a dict has; false when they cannot be read. The caller knows the type.
bool bits_of_real(uint64_t object, uint64_t& bits) noexcept;
bool length_of_dict(uint64_t object, uint64_t& count) noexcept;

/// Keys and values of a dict, or of an object's attributes.
struct Table {
  uint64_t entries, count, values;  ///< values 0: beside the keys
  bool has_hashes;
};
bool table_of_dict(uint64_t dict, Table& out) noexcept;
bool table_of_attributes(uint64_t object, uint64_t type, Table& out) noexcept;

/// Entry `i`; false for one that is empty or cannot be read.
bool entry_of(const Table& table, uint64_t i, uint64_t& key, uint64_t& value) noexcept;

/// Name and value of local variable `i` of a frame, a cell's content for a cell. False at the end or when it cannot be read; `value` 0:
/// not set.
bool local_of(uint64_t frame, uint64_t code, uint32_t i, uint64_t& name, uint64_t& value, bool& in_cell) noexcept;

}  // namespace pytracer::crashsafe
