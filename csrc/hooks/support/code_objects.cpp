#include "hooks/support/code_objects.h"

#include "core/core.h"
#include "core/file/journal.h"
#include "hooks/support/intern.h"
#include "hooks/support/python_frames.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace pytracer::hooks {

std::atomic<uint32_t> code_generation{1};

namespace {

using blackbox::EntryKind;

constexpr size_t kLongestTable = 8192;

// PyTypeObject.tp_dealloc, in every CPython since 2.x.
constexpr long kDealloc = 48;

InternMap<15> codes;  // PyCodeObject* -> CODE
std::vector<std::string> directories;
crashsafe::PythonOffsets at;  // of the running CPython
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
TextView view(uint64_t text) {
  if (text == 0 || load<const void*>(text, at.ob_type) != &PyUnicode_Type) return {"?", 1, 1};
  auto state = load<uint32_t>(text, at.str_state);
  auto kind = static_cast<uint8_t>(state >> 2 & 7);
  bool compact = state >> 5 & 1, ascii = state >> 6 & 1;
  if (!compact) return {"?", 1, 1};
  const auto* data = reinterpret_cast<const char*>(text) + (ascii ? at.str_ascii : at.str_compact);
  return {data, static_cast<uint32_t>(load<uint64_t>(text, at.str_len)) * kind, kind};
}

TextView line_table(uint64_t code) {
  auto table = load<uint64_t>(code, at.co_linetable);
  if (table == 0 || load<const void*>(table, at.ob_type) != &PyBytes_Type) return {"", 0, 1};
  auto nbytes = std::min<uint64_t>(load<uint64_t>(table, at.bytes_size), kLongestTable);
  return {reinterpret_cast<const char*>(table) + at.bytes_data, static_cast<uint32_t>(nbytes), 1};
}

bool starts_with(const TextView& text, const std::string& prefix) {
  return text.kind == 1 && !prefix.empty() && text.nbytes >= prefix.size() && memcmp(text.data, prefix.data(), prefix.size()) == 0;
}

// By torch.compile: inductor's folder, and torch.fx's files that are none.
bool is_generated(const TextView& file) {
  constexpr std::string_view kFolder = "/torchinductor_", kNoFile = "<eval_with_key>";
  if (file.kind != 1) return false;
  std::string_view path(static_cast<const char*>(file.data), file.nbytes);
  return path.find(kFolder) != path.npos || path.substr(0, kNoFile.size()) == kNoFile;
}

}  // namespace

// The running frame holds a reference to the code, and its strings do not change.
__attribute__((noinline, cold)) uint32_t intern_code(uint64_t code) {
  if (uint32_t id = codes.find(code)) return id;
  TextView name = view(load<uint64_t>(code, at.co_qualname)), file = view(load<uint64_t>(code, at.co_filename)), table = line_table(code);
  bool in_library =
      is_generated(file) || std::any_of(directories.begin(), directories.end(), [&](const std::string& d) { return starts_with(file, d); });
  blackbox::CodeEntry entry{load<int32_t>(code, at.co_firstlineno),
                            static_cast<uint16_t>(at.minor),
                            name.kind,
                            file.kind,
                            name.nbytes,
                            file.nbytes,
                            table.nbytes,
                            in_library};
  core::Piece pieces[] = {{&entry, sizeof entry}, {name.data, name.nbytes}, {file.data, file.nbytes}, {table.data, table.nbytes}};
  std::string bytes;
  for (const auto& piece : pieces) bytes.append(static_cast<const char*>(piece.data), piece.nbytes);
  uint32_t id = pytracer_journal(static_cast<uint32_t>(EntryKind::kCode), bytes.data(), bytes.size());
  if (id == 0) return 0;
  id |= in_library ? kInLibrary : 0;
  codes.add(code, id);
  return id;
}

void follow_code_objects(const std::vector<std::string>& library_directories, const crashsafe::PythonOffsets& offsets) {
  directories = library_directories;
  at = offsets;
  if (original_dealloc != nullptr) return;
  auto* slot = reinterpret_cast<destructor*>(reinterpret_cast<char*>(&PyCode_Type) + kDealloc);
  original_dealloc = *slot;
  *slot = code_dealloc;
}

}  // namespace pytracer::hooks
