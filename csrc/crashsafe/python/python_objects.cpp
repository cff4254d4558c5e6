#include "crashsafe/python/python_objects.h"

namespace pytracer::crashsafe {
namespace {

constexpr PythonObjects kRows[] = {
#include "crashsafe/python/python_objects.inc"
};
constexpr uint64_t kMostEntries = 1 << 20;  // a larger number is not a count

const PythonObjects* py = nullptr;
PythonTypes types{};

// Where the keys of a dict keep their entries: behind an index of one, two, four or eight bytes for each slot.
bool table_of_keys(uint64_t keys, uint64_t values, Table& out) {
  if (keys == 0 || !read_value(out.count, keys + py->keys_count) || out.count > kMostEntries) return false;
  uint64_t index_bytes = 0;
  if (py->keys_log2_bytes >= 0) {
    uint8_t log2 = 0, kind = 0;
    if (!read_value(log2, keys + py->keys_log2_bytes) || !read_value(kind, keys + py->keys_kind) || log2 > 32 || kind > 2) return false;
    index_bytes = 1ull << log2;
    out.has_hashes = kind == 0;
  } else {
    uint64_t slots = 0;
    if (!read_value(slots, keys + py->keys_size) || slots > kMostEntries) return false;
    index_bytes = slots * (slots <= 0xff ? 1 : slots <= 0xffff ? 2 : 4);
    out.has_hashes = true;
  }
  out.entries = keys + static_cast<uint64_t>(py->keys_indices) + index_bytes;
  out.values = values != 0 ? values + static_cast<uint64_t>(py->values_first) : 0;
  return true;
}

// Attributes that the interpreter keeps beside the object, without a dict: only its class has the keys.
bool table_of_values(uint64_t type, uint64_t values, Table& out) { return values != 0 && table_of_keys(word_at(type + py->type_keys), values, out); }

}  // namespace

bool trust_python_objects(int minor, const PythonTypes& known) noexcept {
  for (const auto& row : kRows)
    if (row.minor == minor) {
      types = known;
      py = &row;
    }
  return py != nullptr;
}

void distrust_python_objects() noexcept { py = nullptr; }
const PythonObjects* python_objects() noexcept { return python_offsets() != nullptr ? py : nullptr; }
const PythonTypes& python_types() noexcept { return types; }

uint64_t word_at(uint64_t addr) noexcept {
  uint64_t value = 0;
  read_value(value, addr);
  return value;
}

uint64_t type_of(uint64_t object) noexcept { return object != 0 ? word_at(object + python_offsets()->ob_type) : 0; }

bool items_of(uint64_t object, uint64_t& first, uint64_t& count) noexcept {
  uint64_t type = type_of(object);
  if (type != types.list && type != types.tuple) return false;
  first = type == types.list ? word_at(object + py->list_items) : object + static_cast<uint64_t>(py->tuple_items);
  return first != 0 && read_value(count, object + py->size) && count <= kMostEntries;
}

bool whole_number(uint64_t object, int64_t& value) noexcept {
  // ob_size has the sign before 3.12; since then bits 3 and up of lv_tag count the digits, and the lowest two are 2 for a negative number.
  int64_t size = 0;
  if (!read_value(size, object + static_cast<uint64_t>(py->size))) return false;
  bool tagged = py->minor >= 12, negative = tagged ? (size & 3) == 2 : size < 0;
  int64_t count = tagged ? ((size & 3) == 1 ? 0 : size >> 3) : negative ? -size : size;
  if (count < 0 || count > 3) return false;
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t digit = 0;  // of 30 bits
    if (!read_value(digit, object + static_cast<uint64_t>(py->int_digits) + static_cast<uint64_t>(i) * sizeof digit)) return false;
    if (digit >> 30 != 0 || (i == 2 && digit >= 8)) return false;
    sum |= static_cast<uint64_t>(digit) << (30 * i);
  }
  if (sum >> 63 != 0) return false;
  value = negative ? -static_cast<int64_t>(sum) : static_cast<int64_t>(sum);
  return true;
}

// ob_fval, and ma_used: the first member behind PyObject, as is ob_size.
bool bits_of_real(uint64_t object, uint64_t& bits) noexcept { return read_value(bits, object + static_cast<uint64_t>(py->size)); }
bool length_of_dict(uint64_t object, uint64_t& count) noexcept { return read_value(count, object + static_cast<uint64_t>(py->size)); }

bool table_of_dict(uint64_t dict, Table& out) noexcept {
  uint64_t values = 0;
  return read_value(values, dict + py->dict_values) && table_of_keys(word_at(dict + py->dict_keys), values, out);
}

bool table_of_attributes(uint64_t object, uint64_t type, Table& out) noexcept {
  uint64_t flags = word_at(type + py->type_flags);
  if ((flags & static_cast<uint64_t>(py->managed_dict_flag)) != 0) {
    uint64_t dict = word_at(object + py->managed_dict);
    if (py->inline_values_flag != 0) {  // 3.13: inside the object, unless a dict took them over
      uint64_t values = object + word_at(type + py->type_size);
      uint8_t valid = 0;
      if (dict == 0)
        return (flags & static_cast<uint64_t>(py->inline_values_flag)) != 0 && read_value(valid, values + py->values_valid) && valid == 1 &&
               table_of_values(type, values, out);
    } else if (py->managed_values == py->managed_dict) {  // 3.12: one word for both, distinguished by its lowest bit
      if ((dict & 1) != 0) return table_of_values(type, dict + 1, out);
    } else if (dict == 0) {
      return table_of_values(type, word_at(object + py->managed_values), out);
    }
    return dict != 0 && table_of_dict(dict, out);
  }
  int64_t offset = static_cast<int64_t>(word_at(type + py->type_dict));
  if (offset <= 0 || offset > 1 << 16) return false;
  uint64_t dict = word_at(object + static_cast<uint64_t>(offset));
  return type_of(dict) == types.dict && table_of_dict(dict, out);
}

bool entry_of(const Table& table, uint64_t i, uint64_t& key, uint64_t& value) noexcept {
  uint64_t entry = table.entries + i * (table.has_hashes ? 24 : 16) + (table.has_hashes ? 8 : 0);
  uint64_t pair[2];
  if (!read_bytes(pair, entry, sizeof pair)) return false;
  key = pair[0];
  value = table.values != 0 ? word_at(table.values + i * sizeof(uint64_t)) : pair[1];
  return key != 0 && value != 0;
}

bool local_of(uint64_t frame, uint64_t code, uint32_t i, uint64_t& name, uint64_t& value, bool& in_cell) noexcept {
  uint64_t index = i;
  const long tuples[] = {py->co_names, py->co_cells, py->co_free};  // from 3.11 on the first one has them all
  for (long names : tuples) {
    if (names < 0) return false;
    uint64_t tuple = word_at(code + names), count = 0;
    if (type_of(tuple) != types.tuple || !read_value(count, tuple + py->size) || count > kMostEntries) return false;
    if (index < count) {
      name = word_at(tuple + py->tuple_items + index * sizeof(uint64_t));
      value = untagged(word_at(frame + py->f_locals + i * sizeof(uint64_t)));
      in_cell = value != 0 && type_of(value) == types.cell;
      if (in_cell) value = word_at(value + py->cell_value);
      return true;
    }
    index -= count;
  }
  return false;
}

}  // namespace pytracer::crashsafe
