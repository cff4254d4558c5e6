#include "core/file/journal.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/box_gate.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/sys.h"

#include <cstring>

namespace pytracer::core {

using namespace blackbox;

uint32_t tick() noexcept {
  uint32_t epoch = std::atomic_ref(g_box.header->epoch).fetch_add(1, std::memory_order_relaxed) + 1;
  Epoch& slot = g_box.epochs.data[epoch % g_box.epochs.items];
  crashsafe::SeqSlot<Epoch, &Epoch::epoch>(slot).write(epoch, [](Epoch& begun) {
    begun.mono_ns = crashsafe::now_ns();
    begun.step = std::atomic_ref(g_box.header->step).load(std::memory_order_relaxed);
  });
  return epoch;
}

namespace {

// Entries that nearly every process has: by themselves no reason for a file.
bool is_common(EntryKind kind) {
  return kind == EntryKind::kProcess || kind == EntryKind::kEnvironment || kind == EntryKind::kWait || kind == EntryKind::kCode ||
         kind == EntryKind::kStack || kind == EntryKind::kSignalSent;
}

}  // namespace

uint32_t append(EntryKind kind, const Piece* pieces, size_t count) noexcept {
  if (!is_common(kind)) crashsafe::ensure_box();
  crashsafe::BoxGate gate;
  size_t nbytes = sizeof(EntryHeader);
  for (size_t i = 0; i < count; i++) nbytes += pieces[i].nbytes;
  uint64_t size = (nbytes + 7) & ~7ull;
  std::atomic_ref used(g_box.header->journal_used);
  uint64_t at = used.load(std::memory_order_relaxed);
  do {
    if (at + size > g_box.journal.items || !gate.open()) {
      std::atomic_ref(g_box.header->journal_dropped).fetch_add(1, std::memory_order_relaxed);
      return 0;
    }
  } while (!used.compare_exchange_weak(at, at + size, std::memory_order_acq_rel));

  auto* entry = reinterpret_cast<EntryHeader*>(g_box.journal.data + at);
  EntryHeader head{static_cast<uint16_t>(kJournalMagic), static_cast<uint16_t>(kind), static_cast<uint32_t>(nbytes), crashsafe::now_ns(), tick(), 0};
  memcpy(entry, &head, sizeof head);  // the size first: a reader can step over an entry whose writer died
  char* to = reinterpret_cast<char*>(entry + 1);
  for (size_t i = 0; i < count; i++) {
    if (pieces[i].nbytes != 0) memcpy(to, pieces[i].data, pieces[i].nbytes);
    to += pieces[i].nbytes;
  }
  std::atomic_ref(entry->published).store(1, std::memory_order_release);  // no SeqSlot: an entry is written once, and never changed
  return static_cast<uint32_t>(at / 8);
}

uint32_t append(EntryKind kind, const void* data, size_t nbytes) noexcept {
  Piece piece{data, nbytes};
  return append(kind, &piece, 1);
}

void note(CoreNote code, uint64_t addr, uint64_t value) noexcept {
  CoreNoteEntry entry{static_cast<uint32_t>(code), 0, addr, value};
  append(EntryKind::kCoreNote, &entry, sizeof entry);
}

}  // namespace pytracer::core
