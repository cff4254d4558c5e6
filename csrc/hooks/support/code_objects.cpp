#include "hooks/support/code_objects.h"

#include "core/core.h"
#include "core/file/journal.h"
#include "hooks/support/intern.h"

#include <algorithm>
#include <cstring>

namespace pytracer::hooks {

std::atomic<uint32_t> code_generation{1};

namespace {

using blackbox::EntryKind;

constexpr size_t kLongestTable = 8192;

InternMap<15> codes;  // PyCodeObject* -> CODE
std::vector<std::string> directories;
destructor original_dealloc = nullptr;

// A code object's address is its key only while it lives: of 300 regenerated functions 237 had distinct addresses.
void code_dealloc(PyObject* object) {
  if (codes.retire(reinterpret_cast<uint64_t>(object))) code_generation.fetch_add(1, std::memory_order_release);
  original_dealloc(object);
}

struct TextView {
  const void* data;
  uint32_t nbytes;
  uint8_t kind;
};
TextView view(PyObject* text) {
  if (text == nullptr || !PyUnicode_Check(text)) return {"?", 1, 1};
  auto kind = static_cast<uint8_t>(PyUnicode_KIND(text));
  return {PyUnicode_DATA(text), static_cast<uint32_t>(PyUnicode_GET_LENGTH(text)) * kind, kind};
}

bool starts_with(const TextView& text, const std::string& prefix) {
  return text.kind == 1 && !prefix.empty() && text.nbytes >= prefix.size() && memcmp(text.data, prefix.data(), prefix.size()) == 0;
}

}  // namespace

// The running frame holds a reference to the code, and its strings do not change.
__attribute__((noinline, cold)) uint32_t intern_code(PyCodeObject* code) {
  auto key = reinterpret_cast<uint64_t>(code);
  if (uint32_t id = codes.find(key)) return id;
#if PY_VERSION_HEX >= 0x030B0000
  TextView name = view(code->co_qualname);
#else
  TextView name = view(code->co_name);
#endif
  TextView file = view(code->co_filename);
  PyObject* table = code->co_linetable;
  uint32_t table_nbytes = PyBytes_Check(table) ? static_cast<uint32_t>(PyBytes_GET_SIZE(table)) : 0;
  if (table_nbytes > kLongestTable) table_nbytes = kLongestTable;
  bool in_library = std::any_of(directories.begin(), directories.end(), [&](const std::string& d) { return starts_with(file, d); });
  blackbox::CodeEntry entry{code->co_firstlineno, PY_MINOR_VERSION, name.kind, file.kind, name.nbytes, file.nbytes, table_nbytes, in_library};
  core::Piece pieces[] = {
      {&entry, sizeof entry}, {name.data, name.nbytes}, {file.data, file.nbytes}, {table_nbytes != 0 ? PyBytes_AS_STRING(table) : "", table_nbytes}};
  std::string bytes;
  for (const auto& piece : pieces) bytes.append(static_cast<const char*>(piece.data), piece.nbytes);
  uint32_t id = pytracer_journal(static_cast<uint32_t>(EntryKind::kCode), bytes.data(), bytes.size());
  if (id == 0) return 0;
  id |= in_library ? kInLibrary : 0;
  codes.add(key, id);
  return id;
}

bool follow_code_objects(const std::vector<std::string>& library_directories) {
  directories = library_directories;
  if (original_dealloc != nullptr) return false;
  original_dealloc = PyCode_Type.tp_dealloc;
  PyCode_Type.tp_dealloc = code_dealloc;
  return true;
}

}  // namespace pytracer::hooks
