// Callable in signal handlers: what is written is bounded, by system calls and checked reads.
#include "core/file/python_stacks.h"

#include "core/file/journal.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/python/python_stack.h"

#include <atomic>

namespace pytracer::core {
namespace {

using namespace blackbox;

constexpr uint32_t kPlaces = 12;
constexpr uint32_t kCodes = 128, kStacks = 128;  // powers of two
constexpr uint32_t kMostText = 4096, kMostTable = 8192;

// What a code object in the journal is recognized by: its address may be another one's later.
struct KnownCode {
  uint64_t code, name, file, table;
  uint32_t id, generation;
};
struct KnownStack {
  uint64_t hash;
  uint32_t id, generation;
};
PYTRACER_LARGE KnownCode known_codes[kCodes];
PYTRACER_LARGE KnownStack known_stacks[kStacks];
std::atomic<bool> in_use{false};
uint32_t appended = 0;  // since the generation began
uint32_t generation = 1;

// Every page can be read: what was read of this thread's own frames is stable, but it may not be what it seems.
bool is_readable(uint64_t at, uint32_t nbytes) {
  char byte;
  for (uint64_t offset = 0; offset < nbytes; offset += 4096)
    if (!crashsafe::read_bytes(&byte, at + offset, 1)) return false;
  return nbytes == 0 || crashsafe::read_bytes(&byte, at + nbytes - 1, 1);
}

struct Text {
  Piece piece{nullptr, 0};
  uint32_t kind = 1;
};
Text text_of(uint64_t object) {
  crashsafe::PythonText text{};
  if (!crashsafe::python_text(object, text) || text.nbytes > kMostText || !is_readable(text.data, text.nbytes)) return {};
  return {{reinterpret_cast<const void*>(text.data), text.nbytes}, text.kind};
}

Piece table_of(uint64_t table) {
  const auto& at = *crashsafe::python_offsets();
  uint64_t nbytes = 0;
  if (!crashsafe::read_value(nbytes, table + static_cast<uint64_t>(at.bytes_size))) return {nullptr, 0};
  if (nbytes > kMostTable) nbytes = nbytes < 1 << 20 ? kMostTable : 0;
  uint64_t data = table + static_cast<uint64_t>(at.bytes_data);
  return is_readable(data, static_cast<uint32_t>(nbytes)) ? Piece{reinterpret_cast<const void*>(data), nbytes} : Piece{nullptr, 0};
}

uint32_t code_id(uint64_t code) {
  const auto& at = *crashsafe::python_offsets();
  KnownCode key{code, 0, 0, 0, 0, generation};
  int32_t first_line = 0;
  if (!crashsafe::read_value(key.name, code + static_cast<uint64_t>(at.co_qualname)) ||
      !crashsafe::read_value(key.file, code + static_cast<uint64_t>(at.co_filename)) ||
      !crashsafe::read_value(key.table, code + static_cast<uint64_t>(at.co_linetable)) ||
      !crashsafe::read_value(first_line, code + static_cast<uint64_t>(at.co_firstlineno)))
    return 0;
  KnownCode& slot = known_codes[(code >> 4 ^ code >> 11) % kCodes];
  if (slot.code == code && slot.name == key.name && slot.file == key.file && slot.table == key.table && slot.generation == generation) return slot.id;
  Text name = text_of(key.name), file = text_of(key.file);
  Piece table = table_of(key.table);
  CodeEntry entry{first_line,
                  static_cast<uint16_t>(at.minor),
                  static_cast<uint8_t>(name.kind),
                  static_cast<uint8_t>(file.kind),
                  static_cast<uint32_t>(name.piece.nbytes),
                  static_cast<uint32_t>(file.piece.nbytes),
                  static_cast<uint32_t>(table.nbytes),
                  0};
  Piece pieces[] = {{&entry, sizeof entry}, name.piece, file.piece, table};
  key.id = append(EntryKind::kCode, pieces, 4);
  if (key.id != 0) slot = key;
  return key.id;
}

// FNV-1a over what the entry depends on.
uint64_t hash_of(const crashsafe::FrameView* frames, int count) {
  const auto& at = *crashsafe::python_offsets();
  uint64_t hash = 0xcbf29ce484222325;
  for (int i = 0; i < count; i++) {
    uint64_t table = 0;
    crashsafe::read_value(table, frames[i].code + static_cast<uint64_t>(at.co_linetable));
    for (uint64_t word : {frames[i].code, table, static_cast<uint64_t>(frames[i].offset)}) hash = (hash ^ word) * 0x100000001b3;
  }
  return hash;
}

uint32_t append_stack(const crashsafe::FrameView* frames, int count) {
  StackEntry head{0, 0};
  StackPlace places[kPlaces];
  for (int i = 0; i < count; i++)
    if (uint32_t id = code_id(frames[i].code)) places[head.count++] = {id, static_cast<uint32_t>(frames[i].offset)};
  Piece pieces[] = {{&head, sizeof head}, {places, head.count * sizeof places[0]}};
  return head.count != 0 ? append(EntryKind::kStack, pieces, 2) : 0;
}

}  // namespace

uint32_t python_stack_entry(uint32_t most) noexcept {
  if (crashsafe::python_offsets() == nullptr) return 0;
  crashsafe::CheckedReads reads;
  if (!reads.possible() || in_use.exchange(true, std::memory_order_acquire)) return 0;
  crashsafe::FrameView frames[kPlaces];
  int count = crashsafe::own_frames(frames, kPlaces);
  uint64_t hash = hash_of(frames, count);
  KnownStack& slot = known_stacks[hash % kStacks];
  bool is_known = slot.hash == hash && slot.generation == generation;
  if (!is_known && appended < most) {
    appended++;
    slot = {hash, append_stack(frames, count), generation};
    is_known = true;
  }
  uint32_t id = is_known ? slot.id : 0;
  in_use.store(false, std::memory_order_release);
  return id;
}

// In most children there is none: a page that is not written is not copied.
void forget_python_stacks() noexcept {
  if (in_use.load(std::memory_order_relaxed)) in_use.store(false, std::memory_order_relaxed);
  if (appended == 0) return;
  appended = 0;
  generation++;
}

}  // namespace pytracer::core
