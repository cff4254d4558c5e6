#include "crashsafe/python/python_stack.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/platform/safe_read.h"

#include <pthread.h>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

using blackbox::PythonFrame;

constexpr PythonOffsets kRows[] = {
#include "crashsafe/python/python_offsets.inc"
};
constexpr int kInterpreters = 8, kThreads = 1024, kOwnFrames = 192, kOtherFrames = 24;
constexpr int kHandled = 8, kTraceback = 64;
constexpr uint32_t kUnreadable = ~0u, kLongestText = 300, kLongestTable = 8192;
constexpr uint64_t kIsException = 1ull << 30;  // Py_TPFLAGS_BASE_EXC_SUBCLASS of a type

const PythonOffsets* py = nullptr;
uint64_t runtime_addr = 0, code_type = 0;

// Copies into the arena; kUnreadable when it does not fit or cannot be read.
uint32_t keep(uint64_t from, uint32_t nbytes) {
  auto& crash = *g_box.crash.data;
  uint32_t at = crash.arena_used;
  if (at > g_box.arena.items || nbytes > g_box.arena.items - at || !read_bytes(g_box.arena.data + at, from, nbytes)) {
    crash.python_truncated = 1;
    return kUnreadable;
  }
  crash.arena_used = at + nbytes;
  return at;
}

void keep_text(uint64_t object, uint32_t& at, uint32_t& nbytes, uint32_t& kind) {
  PythonText text{};
  at = kUnreadable;
  nbytes = 0;
  if (!python_text(object, text)) return;
  kind = text.kind;
  at = keep(text.data, text.nbytes);
  if (at != kUnreadable) nbytes = text.nbytes;
}

bool is_code(uint64_t object) {
  uint64_t type = 0;
  return read_value(type, object + py->ob_type) && type == code_type;
}

void keep_frame(FrameView view) {
  auto& crash = *g_box.crash.data;
  if (crash.python_frame_count >= g_box.python_frames.items) {
    crash.python_truncated = 1;
    return;
  }
  PythonFrame* frames = g_box.python_frames.data;
  PythonFrame& frame = frames[crash.python_frame_count];
  for (uint32_t i = crash.python_frame_count; i-- > 0 && i + 512 > crash.python_frame_count;)
    if (frames[i].code == view.code) {  // recursion, or threads that do the same: share the bytes
      frame = frames[i];
      frame.offset = view.offset;
      frame.frame = view.frame;
      crash.python_frame_count++;
      return;
    }
  frame = {};
  frame.code = view.code;
  frame.offset = view.offset;
  frame.frame = view.frame;
  frame.name = frame.file = frame.table = kUnreadable;
  uint64_t name = 0, file = 0, table = 0, table_nbytes = 0;
  read_value(frame.first_line, view.code + py->co_firstlineno);
  if (read_value(name, view.code + py->co_qualname)) keep_text(name, frame.name, frame.name_nbytes, frame.name_kind);
  if (read_value(file, view.code + py->co_filename)) keep_text(file, frame.file, frame.file_nbytes, frame.file_kind);
  if (read_value(table, view.code + py->co_linetable) && read_value(table_nbytes, table + py->bytes_size) && table_nbytes < 1 << 20) {
    if (table_nbytes > kLongestTable) table_nbytes = kLongestTable;
    frame.table = keep(table + py->bytes_data, table_nbytes);
    frame.table_nbytes = frame.table == kUnreadable ? 0 : table_nbytes;
  }
  crash.python_frame_count++;
}

// As CPython does: a frame that has not begun, and its own code between the caller of a class and __init__ (3.13).
bool is_hidden(const FrameView& view, char owner) {
  int32_t first = 0;
  return owner != py->generator_owner && read_value(first, view.code + py->co_firsttraceable) && view.offset < first * 2;
}

// Calls visit(FrameView) for each Python frame of a thread state, innermost first, until it returns false.
template <class Visit>
void walk(uint64_t thread_state, int limit, Visit visit) {
  uint64_t frame = 0;
  if (!read_value(frame, thread_state + py->ts_frame)) return;
  if (py->cframe_frame >= 0 && !read_value(frame, frame + py->cframe_frame)) return;
  for (int i = 0; frame != 0 && i < limit; i++) {
    uint64_t code = 0, instruction = 0, back = 0;
    char owner = 0;
    if (!read_value(code, frame + py->f_code) || !read_value(back, frame + py->f_back)) return;
    if (py->minor == 10) {
      int32_t index = 0;  // f_lasti counts code units before 3.11
      if (is_code(code) && read_value(index, frame + py->f_instr) && !visit(FrameView{code, index * 2, frame})) return;
    } else {
      code = untagged(code);
      bool shim = read_value(owner, frame + py->f_owner) && owner >= py->first_shim_owner;
      if (!shim && is_code(code) && read_value(instruction, frame + py->f_instr)) {
        FrameView view{code, static_cast<int32_t>(instruction - (code + py->co_code)), frame};
        if (!is_hidden(view, owner) && !visit(view)) return;
      }
    }
    frame = back;
  }
}

// Calls visit(thread_state, pthread) for every thread state of every interpreter until it returns false.
template <class Visit>
void each_thread(Visit visit) {
  uint64_t interpreter = 0;
  read_value(interpreter, runtime_addr + py->rt_interp);
  for (int i = 0; interpreter != 0 && i < kInterpreters; i++) {
    uint64_t state = 0, id = 0;
    read_value(state, interpreter + py->interp_threads);
    for (int k = 0; state != 0 && k < kThreads; k++) {
      if (!read_value(id, state + py->ts_thread_id) || !visit(state, id)) return;
      if (!read_value(state, state + py->ts_next)) break;
    }
    if (!read_value(interpreter, interpreter + py->interp_next)) return;
  }
}

uint64_t word(uint64_t addr) {
  uint64_t value = 0;
  read_value(value, addr);
  return value;
}

// The innermost exception that a thread has caught and is handling: in an `except`, a `finally` or an __exit__(). 0: none.
uint64_t handled_exception(uint64_t thread_state) {
  uint64_t item = word(thread_state + py->ts_exc_info);
  for (int i = 0; item != 0 && i < kHandled; i++, item = word(item + py->exc_previous)) {
    uint64_t value = word(item + py->exc_value), flags = 0;
    if (value != 0 && read_value(flags, word(value + py->ob_type) + py->type_flags) && (flags & kIsException) != 0) return value;
  }
  return 0;
}

void keep_name(uint64_t type, uint32_t& at, uint32_t& nbytes) {
  char name[kLongestText];
  uint64_t text = word(type + py->type_name);
  uint32_t n = 0;
  while (n < sizeof name && read_bytes(name + n, text + n, 1) && name[n] != 0) n++;
  at = keep(text, n);
  nbytes = at != kUnreadable ? n : 0;
}

// From where it was raised to where it was caught, innermost first as all stacks.
void keep_traceback(uint64_t first) {
  FrameView views[kTraceback];
  uint32_t count = 0;
  for (uint64_t at = first; at != 0 && count < 1024; at = word(at + py->tb_next)) {
    int32_t offset = 0;
    uint64_t frame = word(at + py->tb_frame);
    if (py->frame_object_frame >= 0) frame = word(frame + py->frame_object_frame);
    uint64_t code = py->minor == 10 ? word(frame + py->f_code) : untagged(word(frame + py->f_code));
    if (!read_value(offset, at + py->tb_lasti) || !is_code(code)) break;
    views[count++ % kTraceback] = {code, offset, frame};
  }
  for (uint32_t i = 0; i < count && i < kTraceback; i++) keep_frame(views[(count - 1 - i) % kTraceback]);
}

void keep_handled(uint64_t exception, bool of_main) {
  auto& crash = *g_box.crash.data;
  uint64_t args = word(exception + py->exc_args), count = 0;
  keep_name(word(exception + py->ob_type), crash.handled_type, crash.handled_type_nbytes);
  crash.handled_message = kUnreadable;
  if (args != 0 && read_value(count, args + py->tuple_size) && count > 0)
    keep_text(word(args + py->tuple_items), crash.handled_message, crash.handled_message_nbytes, crash.handled_message_kind);
  crash.handled_first_frame = crash.python_frame_count;
  keep_traceback(word(exception + py->exc_traceback));
  crash.handled_frame_count = crash.python_frame_count - crash.handled_first_frame;
  crash.handled_how = of_main ? 2 : 1;
}

}  // namespace

uint64_t python_runtime() noexcept { return runtime_addr; }

bool trust_python(int minor, uint64_t runtime, uint64_t type_of_code) noexcept {
  for (const auto& row : kRows)
    if (row.minor == minor) {
      runtime_addr = runtime;
      code_type = type_of_code;
      py = &row;
      return true;
    }
  return false;
}

bool python_text(uint64_t object, PythonText& out) noexcept {
  uint64_t length = 0;
  uint32_t state = 0;
  if (!read_value(length, object + py->str_len) || !read_value(state, object + py->str_state) || length > 65536) return false;
  uint32_t kind = state >> 2 & 7;
  bool compact = state >> 5 & 1, ascii = state >> 6 & 1;
  if (!compact || (kind != 1 && kind != 2 && kind != 4)) return false;
  uint64_t data = object + (ascii ? py->str_ascii : py->str_compact);
  if (length > kLongestText) {
    data += (length - kLongestText) * kind;
    length = kLongestText;
  }
  out = {data, static_cast<uint32_t>(length) * kind, kind};
  return true;
}

const PythonOffsets* python_offsets() noexcept { return py; }
void distrust_python() noexcept { py = nullptr; }

int own_frames(FrameView* out, int limit) noexcept {
  if (py == nullptr) return 0;
  int count = 0;
  uint64_t self = static_cast<uint64_t>(pthread_self());
  each_thread([&](uint64_t state, uint64_t id) {
    if (id != self) return true;
    walk(state, limit, [&](FrameView view) {
      out[count++] = view;
      return count < limit;
    });
    return false;
  });
  return count;
}

bool code_is_named(uint64_t code, const char* name) noexcept {
  uint64_t object = 0;
  PythonText text{};
  char bytes[64];
  size_t n = strlen(name);
  return py != nullptr && n <= sizeof bytes && read_value(object, code + py->co_qualname) && python_text(object, text) && text.kind == 1 &&
         text.nbytes == n && read_bytes(bytes, text.data, n) && memcmp(bytes, name, n) == 0;
}

void write_python_stacks() noexcept {
  if (py == nullptr) return;
  auto& crash = *g_box.crash.data;
  uint64_t self = static_cast<uint64_t>(pthread_self()), main = 0, handled[2] = {};
  each_thread([&](uint64_t, uint64_t id) {  // lists begin with the newest thread: the last one is the oldest
    main = id;
    return true;
  });
  // The crashed thread first, then the oldest one: they are recorded even if a later one faults or does not fit.
  for (int pass = 0; pass < 3; pass++)
    each_thread([&](uint64_t state, uint64_t id) {
      if (pass != (id == self ? 0 : id == main ? 1 : 2)) return true;
      if (crash.python_thread_count >= g_box.python_threads.items) {
        crash.python_truncated = 1;
        return false;
      }
      auto& thread = g_box.python_threads.data[crash.python_thread_count];
      thread.pthread = id;
      thread.first_frame = crash.python_frame_count;
      thread.frame_count = 0;
      walk(state, pass == 0 ? kOwnFrames : kOtherFrames, [&](FrameView view) {
        keep_frame(view);
        return true;
      });
      thread.frame_count = crash.python_frame_count - thread.first_frame;
      crash.python_thread_count++;
      if (pass == 0) crash.python_matched = 1;
      if (pass < 2) handled[pass] = handled_exception(state);
      return true;
    });
  if (handled[0] != 0 || handled[1] != 0) keep_handled(handled[0] != 0 ? handled[0] : handled[1], handled[0] == 0 || self == main);
}

}  // namespace pytracer::crashsafe
