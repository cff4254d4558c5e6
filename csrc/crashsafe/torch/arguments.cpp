#include "crashsafe/torch/arguments.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/memory/elements.h"
#include "crashsafe/memory/map_lines.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/python/array_values.h"
#include "crashsafe/torch/torch_objects.h"
#include "crashsafe/unwind/native_stack.h"

#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint64_t kMostStackBytes = 32 << 10, kLeastAddress = 1 << 16;
constexpr uint64_t kNsLimit = 4'000'000;  // a word that is no address costs a fault
constexpr uint32_t kBlockWords = 64, kCapturedWords = 16, kDeviceRanges = 64, kInlineDimensions = 5, kMostDimensions = 64;
constexpr uint32_t kHeldFrames = 8, kMostHeld = 24;
constexpr uint32_t kNone = ~0u, kCpu = 0;

struct Where {
  uint64_t found_at;
  uint32_t frame, register_index;
};

// Static: the handler's stack has no room. One thread reports at a time.
struct Search {
  struct {
    uint64_t start, end;
  } device[kDeviceRanges];
  uint32_t device_count, frame;
  uint64_t stack_low, stack_high;
  Spent words;
  ElementTime values;
};
PYTRACER_LARGE constinit Search search{};

// Reading a device's memory may wait for the device, or for ever.
void note_device_memory() {
  each_mapping([](const MapLine& line) {
    if (!line.path_begins("/dev/") || line.path_begins("/dev/shm/") || line.path_begins("/dev/zero")) return true;
    if (search.device_count == kDeviceRanges) return false;
    search.device[search.device_count++] = {line.start, line.end};
    return true;
  });
}

bool may_be_read(uint64_t addr) {
  if (addr < kLeastAddress || addr >= kUserAddressesEnd || addr % alignof(uint64_t) != 0) return false;
  for (uint32_t i = 0; i < search.device_count; i++)
    if (addr >= search.device[i].start && addr < search.device[i].end) return false;
  return true;
}

// c10::ScalarType; a complex number is read as two floats. False: of another type.
bool elements_of(const Argument& argument, Elements& elements, uint64_t& count) {
  constexpr uint64_t kHalf = 0x7c00, kFloat = 0x7f80'0000, kDouble = 0x7ff0'0000'0000'0000, kBFloat16 = 0x7f80;
  static constexpr Elements kTypes[] = {{1, false, 0},     {1, true, 0},       {2, true, 0},       {4, true, 0},
                                        {8, true, 0},      {2, false, kHalf},  {4, false, kFloat}, {8, false, kDouble},
                                        {2, false, kHalf}, {4, false, kFloat}, {8, false, kDouble}};
  constexpr uint32_t kTypeCount = sizeof kTypes / sizeof kTypes[0], kFirstComplex = 8, kBFloat16Type = 15;
  if (argument.dtype >= kTypeCount && argument.dtype != kBFloat16Type) return false;
  elements = argument.dtype < kTypeCount ? kTypes[argument.dtype] : Elements{2, false, kBFloat16};
  count = argument.elements * (argument.dtype >= kFirstComplex && argument.dtype < kTypeCount ? 2 : 1);
  return true;
}

// Distance in elements from the first element to the last one; false: too far, or with a negative stride.
bool find_span(const Argument& argument, uint64_t& span) {
  span = 0;
  for (uint32_t i = 0; i < argument.dimensions; i++) {
    int64_t size = argument.sizes[i], stride = argument.strides[i];
    if (size < 1 || size > kMostElements || stride < 0 || stride >= kMostElements) return false;
    span += static_cast<uint64_t>(size - 1) * static_cast<uint64_t>(stride);
  }
  return span < kMostElements;
}

// Whether the elements lie side by side, in whatever order: LAPACK's matrices have their columns in a row.
bool is_dense(const Argument& argument) {
  uint64_t stride = 1;
  for (uint32_t done = 0; done < argument.dimensions; done++) {
    uint32_t next = 0;  // the dimension that has this stride; those of size 1 have any
    while (next < argument.dimensions && (argument.sizes[next] == 1 || argument.strides[next] != static_cast<int64_t>(stride))) next++;
    if (next == argument.dimensions) break;
    stride *= static_cast<uint64_t>(argument.sizes[next]);
  }
  return stride == argument.elements;
}

// With gaps: one read, then arithmetic.
bool look_at_gaps(Seen& seen, const Argument& argument, uint64_t from, const Elements& elements) {
  uint64_t span = 0, index = 0;
  if (argument.elements > kMostElements || !find_span(argument, span) || !read_elements(from, span + 1, elements.nbytes)) return false;
  int64_t at[8] = {};
  for (uint64_t left = argument.elements; left > 0; left--) {
    if (index > span) return false;  // the number of elements is not the product of the sizes
    seen.include(elements, bits_at(index, elements.nbytes));
    for (uint32_t i = argument.dimensions; i-- > 0;) {
      index += static_cast<uint64_t>(argument.strides[i]);
      if (++at[i] < argument.sizes[i]) break;
      index -= static_cast<uint64_t>(argument.sizes[i]) * static_cast<uint64_t>(argument.strides[i]);
      at[i] = 0;
    }
  }
  return true;
}

// Minimum and maximum of an integer tensor; how many numbers of another one are NaN. Without gaps it may be large.
void look_at_values(Argument& argument) {
  Elements elements{};
  uint64_t count = 0;
  if (!torch_offsets()->values || argument.device != kCpu || argument.base == 0 || argument.elements == 0 || argument.elements > kMostInARow ||
      argument.dimensions > sizeof argument.sizes / sizeof argument.sizes[0] || !elements_of(argument, elements, count) ||
      argument.offset > kUserAddressesEnd)
    return;
  bool is_float = elements.exponent != 0, dense = is_dense(argument);
  if (is_float && (!search.values.is_left(true) || (!dense && count != argument.elements))) return;
  search.values.all.begin();
  Seen seen{};
  uint64_t from = argument.base + argument.offset * (elements.nbytes * count / argument.elements);
  bool read = dense ? look_at_row(seen, search.values, from, elements, count) : look_at_gaps(seen, argument, from, elements);
  search.values.count(is_float);
  argument.values = read && !is_float;
  argument.minimum = is_float ? 0 : seen.minimum;
  argument.maximum = is_float ? 0 : seen.maximum;
  argument.not_numbers = read && is_float ? seen.not_numbers : 0;
}

bool read_shape(Argument& argument) {
  uint64_t at = argument.impl + torch_offsets()->impl_sizes, dimensions = 0, sizes = at + 8;
  if (!read_value(dimensions, at) || dimensions > kMostDimensions) return false;
  uint64_t strides = sizes + kInlineDimensions * 8;
  if (dimensions > kInlineDimensions) {
    if (!read_value(sizes, at + 8) || !may_be_read(sizes)) return false;
    strides = sizes + dimensions * 8;
  }
  argument.dimensions = static_cast<uint32_t>(dimensions);
  uint64_t kept = (dimensions < 8 ? dimensions : 8) * 8;
  return kept == 0 || (read_bytes(argument.sizes, sizes, kept) && read_bytes(argument.strides, strides, kept));
}

bool read_dtype(Argument& argument) {
  struct {
    uint16_t dtype;
    int8_t device, device_index;
    uint8_t has_device;
  } raw{};
  if (!read_bytes(&raw, argument.impl + torch_offsets()->impl_dtype, 5)) return false;
  argument.dtype = raw.dtype;
  argument.device = raw.has_device == 1 ? static_cast<uint8_t>(raw.device) : kNone;
  return true;
}

// Of the words that refer to a tensor the innermost one is described; of the others only the frame of the outermost counts.
bool is_known(uint64_t impl, const Where& where) {
  for (uint32_t i = 0; i < g_box.crash.data->argument_count; i++) {
    Argument& argument = g_box.arguments.data[i];
    if (argument.impl != impl) continue;
    if (where.frame != kNone) argument.outer_frame = where.frame;
    return true;
  }
  return false;
}

void keep(uint64_t impl, const Where& where, ArgumentHow how) {
  CrashHeader& crash = *g_box.crash.data;
  if (is_known(impl, where)) return;
  if (crash.argument_count >= g_box.arguments.items) {
    crash.arguments_truncated = 1;
    return;
  }
  Argument& argument = g_box.arguments.data[crash.argument_count];
  memset(static_cast<void*>(&argument), 0, sizeof argument);
  argument.impl = impl;
  argument.found_at = where.found_at;
  argument.frame = argument.outer_frame = where.frame;
  argument.register_index = where.register_index;
  argument.how = static_cast<uint32_t>(how);
  argument.device = kNone;
  argument.undefined = impl == torch_offsets()->undefined_impl;
  if (argument.undefined == 0) {
    TensorView tensor{};
    if (!look_at_impl(impl, tensor) || !read_shape(argument) || !read_dtype(argument)) return;
    argument.base = tensor.base;
    argument.elements = tensor.numel;
    argument.offset = tensor.offset;
    look_at_values(argument);
  }
  crash.argument_count++;
}

bool is_impl(uint64_t word, uint64_t first_word) {
  return first_word == torch_offsets()->impl_vtable || (word == torch_offsets()->undefined_impl && word != 0);
}

// A word that may be anything. Undefined tensors count as references only: what was moved from is undefined, too.
bool look_at_word(uint64_t word, const Where& where, bool captured) {
  uint64_t first = 0, behind = 0;
  if (!may_be_read(word) || !read_value(first, word)) return false;
  if (is_impl(word, first)) {
    if (first == torch_offsets()->impl_vtable) keep(word, where, captured ? ArgumentHow::kCaptured : ArgumentHow::kImpl);
    return true;
  }
  if (!may_be_read(first) || !read_value(behind, first) || !is_impl(first, behind)) return false;
  keep(first, where, captured ? ArgumentHow::kCaptured : ArgumentHow::kReference);
  return true;
}

// A worker of a native pool runs a lambda whose captures lie on the stack of the thread that opened the parallel region.
void look_behind(uint64_t word, const Where& where) {
  uint64_t words[kCapturedWords];
  if (!may_be_read(word) || (word >= search.stack_low && word < search.stack_high) || !read_bytes(words, word, sizeof words)) return;
  for (uint64_t captured : words) look_at_word(captured, where, true);
}

void look_at(uint64_t word, const Where& where, bool worker) {
  if (!look_at_word(word, where, false) && worker) look_behind(word, where);
}

uint32_t frame_of(uint64_t addr) {
  const CrashHeader& crash = *g_box.crash.data;
  while (search.frame + 1 < crash.native_count) {
    uint64_t next = stack_pointer_of_frame(search.frame + 1);
    if (next == 0 || addr < next) break;
    search.frame++;
  }
  return search.frame + 1 < crash.native_count ? search.frame : kNone;
}

bool out_of_time() {
  search.words.lap(kNsLimit);
  if (search.words.ns < kNsLimit) return false;
  g_box.crash.data->arguments_truncated = 1;
  return true;
}

void look_at_stack(bool worker) {
  const CrashHeader& crash = *g_box.crash.data;
  uint64_t words[kBlockWords], from = crash.sp & ~7ull, end = from + kMostStackBytes;
  if (crash.stack_high != 0 && crash.stack_high > from && crash.stack_high < end) end = crash.stack_high;
  for (; from < end && !out_of_time(); from += sizeof words) {
    uint64_t nbytes = end - from < sizeof words ? (end - from) & ~7ull : sizeof words;
    if (nbytes == 0 || !read_bytes(words, from, nbytes)) return;
    for (uint64_t i = 0; i < nbytes / 8; i++) look_at(words[i], {from + i * 8, frame_of(from + i * 8), kNone}, worker);
  }
}

// Among the first frames of its thread.
bool is_innermost(uint32_t frame) {
  const CrashHeader& crash = *g_box.crash.data;
  for (uint32_t i = 0; i < crash.python_thread_count; i++) {
    const PythonThread& thread = g_box.python_threads.data[i];
    if (frame >= thread.first_frame && frame - thread.first_frame < thread.frame_count) return frame - thread.first_frame < kHeldFrames;
  }
  return false;
}

bool is_of_kind(const Holder& holder, bool global) {
  if (global) return holder.kind == static_cast<uint32_t>(HolderKind::kGlobal);
  return holder.kind == static_cast<uint32_t>(HolderKind::kLocal) || holder.kind == static_cast<uint32_t>(HolderKind::kCell);
}

// Of what the innermost Python frames hold: the line's own tensors, whether the native code still refers to them or not. Those of their
// modules come last.
void look_at_held() {
  const CrashHeader& crash = *g_box.crash.data;
  uint32_t before = crash.argument_count;
  for (bool global : {false, true})
    for (uint32_t i = 0; i < crash.holder_count && crash.argument_count - before < kMostHeld; i++) {
      const Holder& holder = g_box.referrers.data[i];
      TensorView tensor{};
      if (!is_of_kind(holder, global) || !is_innermost(holder.frame) || !look_at_tensor(holder.object, tensor)) continue;
      keep(tensor.impl, {0, kNone, kNone}, ArgumentHow::kHeld);
    }
}

}  // namespace

void write_arguments() noexcept {
  CrashHeader& crash = *g_box.crash.data;
  if (torch_offsets() == nullptr || torch_offsets()->impl_sizes == 0 || g_box.arguments.data == nullptr) return;
  search.device_count = search.frame = 0;
  search.stack_low = crash.stack_low;
  search.stack_high = crash.stack_high;
  search.words = {};
  search.values = {};
  note_device_memory();
  search.words.begin();
  bool worker = crash.python_matched == 0;
  for (uint32_t i = 0; i < kPointerRegisters; i++)
    if (i != kStackPointerIndex) look_at(crash.registers[i], {0, kNone, i}, worker);
  look_at_stack(worker);
  look_at_held();
  write_array_values(search.values, may_be_read);
}

}  // namespace pytracer::crashsafe
