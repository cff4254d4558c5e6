// sys.excepthook is a built-in function, whose code is found by a pointer in a table of CPython's: that pointer leads to us, and we go
// on to the original. The function object stays the same one, `sys.excepthook is sys.__excepthook__` stays true, and nothing is called
// until an exception has reached the top. An audit hook would see the same moment, but costs 0.1 us at each audited event, id() included.
//
// The table is found through the function object, which exists once the interpreter has begun to start: the first module that it
// creates after `sys` is `posix`, by a function in a table that programs may change before Py_Initialize() (PyImport_Inittab).
#include "core/interpose/python_exceptions.h"

#include "core/file/journal.h"
#include "core/process/recorder.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/platform/sys.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <type_traits>

extern "C" {
struct PyImportEntry {
  const char* name;
  void* (*start)();
};
extern PyImportEntry* PyImport_Inittab __attribute__((weak));
}

namespace pytracer::core {
namespace {

constexpr uint32_t kMostExceptions = 32;                              // of one process: an interactive one goes on after each
constexpr size_t kMostMessage = 4000, kMostText = 500, kFrames = 64;  // characters as in record/torch/exceptions.py, at most 4 bytes each
constexpr int kFastCall = 0x80;                                       // METH_FASTCALL

struct Object;
using Hook = Object* (*)(Object * module, Object* const* arguments, intptr_t count);

// PyMethodDef and PyCFunctionObject of CPython 3.10 to 3.14, with the GIL.
struct Method {
  const char* name;
  void* function;
  int flags;
};
struct Object {
  uint64_t references;
  void* type;
};
struct BuiltIn : Object {
  Method* method;
};

// What is called of the interpreter, looked up where it is needed: most processes have none.
struct Python {
  Object* (*attribute)(Object*, const char*);
  Object* (*text_of)(Object*);
  Object* (*encoded)(Object*, const char* encoding, const char* errors);
  char* (*bytes)(Object*);
  intptr_t (*size)(Object*);
  long (*number)(Object*);
  void (*release)(Object*);
  void (*forget_error)();

  bool find() noexcept {
    auto find = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    return find(attribute, "PyObject_GetAttrString") && find(text_of, "PyObject_Str") && find(encoded, "PyUnicode_AsEncodedString") &&
           find(bytes, "PyBytes_AsString") && find(size, "PyBytes_Size") && find(number, "PyLong_AsLong") && find(release, "Py_DecRef") &&
           find(forget_error, "PyErr_Clear");
  }
};

// A new reference, or null: then no error is set.
class Reference {
 public:
  Reference(const Python& python, Object* object) noexcept : python_(python), object_(object) {
    if (object == nullptr) python.forget_error();
  }
  ~Reference() {
    if (object_ != nullptr) python_.release(object_);
  }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  Object* get() const noexcept { return object_; }

 private:
  const Python& python_;
  Object* object_;
};

// JSON in memory of our own. Text that does not fit is cut between characters.
struct Json {
  char* at;
  char* end;

  void raw(const char* text) noexcept {
    for (; *text != 0 && at < end; text++) *at++ = *text;
  }
  void number(long value) noexcept {
    char digits[24];
    size_t n = sizeof digits;
    digits[--n] = 0;
    do digits[--n] = static_cast<char>('0' + value % 10);
    while ((value /= 10) > 0);
    raw(digits + n);
  }
  void escaped(const char* text, size_t nbytes, size_t characters) noexcept {
    constexpr char kHex[] = "0123456789abcdef";
    for (size_t i = 0; i < nbytes && end - at > 16; i++) {
      auto byte = static_cast<unsigned char>(text[i]);
      bool begins = (byte & 0xc0) != 0x80;
      if (begins && characters-- == 0) return;
      if (byte < 0x20 || byte == '"' || byte == '\\') {
        char code[] = {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15], 0};
        raw(code);
      } else {
        *at++ = static_cast<char>(byte);
      }
    }
    while (end - at <= 16 && (at[-1] & 0xc0) == 0x80) at--;  // of a character that was cut
  }
};

std::atomic<bool> busy{false};
std::atomic<uint32_t> recorded{0};
std::atomic<uint64_t> last{0};  // the exception that the Python half has recorded
Hook original_hook = nullptr;
void* (*original_start)() = nullptr;

// str() of an object, in UTF-8; false where it cannot be made.
bool add_text(const Python& python, Json& json, Object* object, size_t characters) {
  Reference text(python, object != nullptr ? python.text_of(object) : nullptr);
  Reference bytes(python, text.get() != nullptr ? python.encoded(text.get(), "utf-8", "backslashreplace") : nullptr);
  if (bytes.get() == nullptr) return false;
  json.escaped(python.bytes(bytes.get()), static_cast<size_t>(python.size(bytes.get())), characters);
  return true;
}
bool add_attribute(const Python& python, Json& json, Object* of, const char* name, size_t characters = kMostText) {
  Reference value(python, of != nullptr ? python.attribute(of, name) : nullptr);
  return value.get() != nullptr && add_text(python, json, value.get(), characters);
}

bool is_none(const Python& python, Object* object) {
  (void)python;
  static Object* none = static_cast<Object*>(dlsym(RTLD_DEFAULT, "_Py_NoneStruct"));
  return object == nullptr || object == none;
}

// As in `package.Error`; of built-in classes and of the program itself without the module.
void add_type(const Python& python, Json& json, Object* type) {
  char* before = json.at;
  if (add_attribute(python, json, type, "__module__")) {
    auto n = static_cast<size_t>(json.at - before);
    bool hidden = (n == 8 && memcmp(before, "builtins", n) == 0) || (n == 8 && memcmp(before, "__main__", n) == 0);
    if (hidden)
      json.at = before;
    else
      json.raw(".");
  }
  if (!add_attribute(python, json, type, "__qualname__")) json.raw("?");
}

void add_frame(const Python& python, Json& json, Object* traceback) {
  Reference frame(python, python.attribute(traceback, "tb_frame"));
  Reference code(python, frame.get() != nullptr ? python.attribute(frame.get(), "f_code") : nullptr);
  Reference line(python, python.attribute(traceback, "tb_lineno"));
  json.raw("{\"function\":\"");
  if (!add_attribute(python, json, code.get(), "co_qualname")) add_attribute(python, json, code.get(), "co_name");  // 3.10 has no co_qualname
  json.raw("\",\"file\":\"");
  add_attribute(python, json, code.get(), "co_filename");
  json.raw("\",\"line\":");
  long number = line.get() != nullptr && !is_none(python, line.get()) ? python.number(line.get()) : 0;
  if (number > 0)
    json.number(number);
  else
    json.raw("null");
  json.raw("}");
}

// Innermost first: the last ones of the chain.
void add_stack(const Python& python, Json& json, Object* traceback) {
  Object* frames[kFrames];
  size_t count = 0;
  for (Object* at = traceback; !is_none(python, at);) {
    frames[count++ % kFrames] = at;
    Reference next(python, python.attribute(at, "tb_next"));
    at = next.get();  // kept alive by the one before
  }
  size_t kept = count < kFrames ? count : kFrames;
  for (size_t i = 0; i < kept && json.end - json.at > 8192; i++) {
    if (i != 0) json.raw(",");
    add_frame(python, json, frames[(count - 1 - i) % kFrames]);
  }
}

void write_down(const Python& python, char* buffer, size_t nbytes, Object* type, Object* value, Object* traceback) {
  Json json{buffer, buffer + nbytes - 64};
  json.raw("{\"type\":\"");
  add_type(python, json, type);
  json.raw("\",\"message\":\"");
  if (!add_text(python, json, value, kMostMessage)) json.raw("(its message could not be made)");
  json.raw(crashsafe::sys_gettid() == g_box_pid ? "\",\"thread\":\"MainThread\",\"python_stack\":[" : "\",\"python_stack\":[");
  add_stack(python, json, traceback);
  json.end = buffer + nbytes;
  json.raw("]}");
  append(blackbox::EntryKind::kException, buffer, static_cast<size_t>(json.at - buffer));
}

// Memory for the moment: a static buffer would count in every process, where a limit of locked memory or address space counts all.
void record(Object* type, Object* value, Object* traceback) {
  constexpr size_t kBytes = 96 << 10;
  Python python;
  if (!python.find()) return;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  write_down(python, static_cast<char*>(memory), kBytes, type, value, traceback);
  munmap(memory, kBytes);
}

bool is_wanted(Object* value) {
  return recording() && !stopped() && crashsafe::sys_getpid() == g_box_pid && reinterpret_cast<uint64_t>(value) != last.load() &&
         recorded.load(std::memory_order_relaxed) < kMostExceptions;
}

// In place of sys.excepthook's own code, with the GIL and no error set.
Object* on_exception(Object* module, Object* const* arguments, intptr_t count) {
  if (count == 3 && is_wanted(arguments[1]) && !busy.exchange(true, std::memory_order_acquire)) {
    int before = errno;
    recorded.fetch_add(1, std::memory_order_relaxed);
    record(arguments[0], arguments[1], arguments[2]);
    busy.store(false, std::memory_order_release);
    errno = before;
  }
  return original_hook(module, arguments, count);
}

// By the kernel, through a pipe: it refuses where the table cannot be written, instead of a fault. process_vm_writev() is forbidden in
// many containers.
bool store(void** to, void* value) {
  int ends[2];
  if (syscall(SYS_pipe2, ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  bool stored = write(ends[1], &value, sizeof value) == sizeof value && syscall(SYS_read, ends[0], to, sizeof value) == sizeof value;
  syscall(SYS_close, ends[0]);
  syscall(SYS_close, ends[1]);
  return stored;
}

void lead_to_us() {
  auto find = reinterpret_cast<Object* (*)(const char*)>(dlsym(RTLD_DEFAULT, "PySys_GetObject"));
  void* type = dlsym(RTLD_DEFAULT, "PyCFunction_Type");
  auto* hook = find != nullptr ? static_cast<BuiltIn*>(find("excepthook")) : nullptr;  // borrowed
  if (hook == nullptr || type == nullptr || hook->type != type) return;
  Method* method = hook->method;
  if (method->flags != kFastCall || strcmp(method->name, "excepthook") != 0) return;
  original_hook = reinterpret_cast<Hook>(method->function);
  if (!store(&method->function, reinterpret_cast<void*>(on_exception))) original_hook = nullptr;
}

// In place of the function that creates the module `posix`: the interpreter starts, or one more in the same process.
void* start_posix() {
  if (original_hook == nullptr) lead_to_us();
  return original_start();
}

}  // namespace

void watch_python_exceptions() noexcept {
  if (&PyImport_Inittab == nullptr || PyImport_Inittab == nullptr || g_box.header->python_minor == 0) return;
  for (PyImportEntry* entry = PyImport_Inittab; entry->name != nullptr; entry++) {
    if (strcmp(entry->name, "posix") != 0 || entry->start == nullptr) continue;
    original_start = entry->start;
    store(reinterpret_cast<void**>(&entry->start), reinterpret_cast<void*>(start_posix));
    return;
  }
}

void python_exception_recorded(uint64_t exception) noexcept { last.store(exception); }

}  // namespace pytracer::core
