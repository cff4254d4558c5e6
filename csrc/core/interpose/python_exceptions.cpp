// sys.excepthook is a built-in function, whose code is found by a pointer in a table of CPython's: that pointer leads to us, and we go
// on to the original. The function object stays the same one, `sys.excepthook is sys.__excepthook__` stays true, and nothing is called
// until an exception has reached the top. An audit hook would see the same moment, but costs 0.1 us at each audited event, id() included.
//
// The table is found through the function object, which exists once the interpreter has begun to start: the first module that it
// creates after `sys` is `posix`, by a function in a table that programs may change before Py_Initialize() (PyImport_Inittab).
//
// threading.excepthook, which is called when an exception ends a thread, is a built-in function, too, of the module `_thread`. Its
// table is found in the definition that the function of PyImport_Inittab returns.
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
constexpr size_t kMostContexts = 4, kContextBytes = 32 << 10;         // exceptions that were being handled; room that one needs
constexpr int kFastCall = 0x80, kOneArgument = 0x08;                  // METH_FASTCALL, METH_O

struct Object;
using Hook = Object* (*)(Object * module, Object* const* arguments, intptr_t count);
using ThreadHook = Object* (*)(Object * module, Object* argument);

// PyMethodDef, PyCFunctionObject and PyModuleDef of CPython 3.10 to 3.14, with the GIL.
struct Method {
  const char* name;
  void* function;
  int flags;
  const char* text;
};
struct Object {
  uint64_t references;
  void* type;
};
struct BuiltIn : Object {
  Method* method;
};
struct ModuleDefinition : Object {
  void* base[3];
  const char* name;
  const char* text;
  intptr_t size;
  Method* methods;
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
  int (*is_true)(Object*);
  void (*forget_error)();

  bool find() noexcept {
    auto find = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    return find(attribute, "PyObject_GetAttrString") && find(text_of, "PyObject_Str") && find(encoded, "PyUnicode_AsEncodedString") &&
           find(bytes, "PyBytes_AsString") && find(size, "PyBytes_Size") && find(number, "PyLong_AsLong") && find(release, "Py_DecRef") &&
           find(is_true, "PyObject_IsTrue") && find(forget_error, "PyErr_Clear");
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
std::atomic<uint32_t> recorded{0}, threads_recorded{0};
std::atomic<uint64_t> last{0};  // the exception that the Python half has recorded
Hook original_hook = nullptr;
ThreadHook original_thread_hook = nullptr;
void* (*original_start)() = nullptr;
void* (*original_thread_start)() = nullptr;

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

void add_exception(const Python& python, Json& json, Object* type, Object* value, Object* traceback) {
  json.raw("\"type\":\"");
  add_type(python, json, type);
  json.raw("\",\"message\":\"");
  if (!add_text(python, json, value, kMostMessage)) json.raw("(its message could not be made)");
  json.raw("\",\"python_stack\":[");
  add_stack(python, json, traceback);
  json.raw("]");
}

// What was being handled when the exception was raised, and so on: what Python prints before it. A new reference.
Object* handled_before(const Python& python, Object* value) {
  Reference cause(python, python.attribute(value, "__cause__")), hidden(python, python.attribute(value, "__suppress_context__"));
  if (is_none(python, cause.get()) && (hidden.get() == nullptr || python.is_true(hidden.get()) != 0)) return nullptr;
  Object* before = python.attribute(value, is_none(python, cause.get()) ? "__context__" : "__cause__");
  if (before == nullptr) python.forget_error();
  return before;
}

void add_contexts(const Python& python, Json& json, Object* value, size_t most) {
  Reference before(python, most != 0 ? handled_before(python, value) : nullptr);
  if (is_none(python, before.get()) || json.end - json.at < static_cast<intptr_t>(kContextBytes)) return;
  Reference type(python, python.attribute(before.get(), "__class__")), traceback(python, python.attribute(before.get(), "__traceback__"));
  json.raw(most == kMostContexts ? "{" : ",{");
  add_exception(python, json, type.get(), before.get(), traceback.get());
  json.raw("}");
  add_contexts(python, json, before.get(), most - 1);
}

struct Uncaught {
  Object *type, *value, *traceback;
  Object* thread;  // that it ended, a threading.Thread, which may be None; null: it ended the process
};

void add_thread(const Python& python, Json& json, Object* thread) {
  if (thread == nullptr) {
    if (crashsafe::sys_gettid() == g_box_pid) json.raw("\"thread\":\"MainThread\",");
    return;
  }
  json.raw("\"tid\":");
  json.number(crashsafe::sys_gettid());
  json.raw(",\"thread\":\"");
  if (!is_none(python, thread)) add_attribute(python, json, thread, "name");
  json.raw("\",");
}

void write_down(const Python& python, char* buffer, size_t nbytes, const Uncaught& error) {
  constexpr intptr_t kEnd = 16;
  Json json{buffer, buffer + nbytes - kEnd};
  json.raw("{");
  add_thread(python, json, error.thread);
  add_exception(python, json, error.type, error.value, error.traceback);
  json.raw(",\"context\":[");
  add_contexts(python, json, error.value, kMostContexts);
  json.end += kEnd;
  json.raw("]}");
  auto kind = error.thread != nullptr ? blackbox::EntryKind::kThreadException : blackbox::EntryKind::kException;
  append(kind, buffer, static_cast<size_t>(json.at - buffer));
}

// Memory for the moment: a static buffer would count in every process, where a limit of locked memory or address space counts all.
void record(const Python& python, const Uncaught& error) {
  constexpr size_t kBytes = 96 << 10;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  write_down(python, static_cast<char*>(memory), kBytes, error);
  munmap(memory, kBytes);
}

// One at a time, with `make` to look at the arguments: nothing of the program's may run before it is known to be wanted.
template <class Make>
void record_once(std::atomic<uint32_t>& count, Make make) {
  if (!recording() || stopped() || crashsafe::sys_getpid() != g_box_pid || count.load(std::memory_order_relaxed) >= kMostExceptions) return;
  if (busy.exchange(true, std::memory_order_acquire)) return;
  int before = errno;
  if (Python python; python.find() && make(python)) count.fetch_add(1, std::memory_order_relaxed);
  busy.store(false, std::memory_order_release);
  errno = before;
}

// In place of sys.excepthook's own code, with the GIL and no error set.
Object* on_exception(Object* module, Object* const* arguments, intptr_t count) {
  if (count == 3 && reinterpret_cast<uint64_t>(arguments[1]) != last.load())
    record_once(recorded, [&](const Python& python) {
      record(python, {arguments[0], arguments[1], arguments[2], nullptr});
      return true;
    });
  return original_hook(module, arguments, count);
}

// In place of threading.excepthook's own code, which ignores SystemExit and raises TypeError for what is no ExceptHookArgs.
Object* on_thread_exception(Object* module, Object* argument) {
  record_once(threads_recorded, [&](const Python& python) {
    Reference type(python, python.attribute(argument, "exc_type")), value(python, python.attribute(argument, "exc_value"));
    Reference traceback(python, python.attribute(argument, "exc_traceback")), thread(python, python.attribute(argument, "thread"));
    auto* ends_quietly = static_cast<Object**>(dlsym(RTLD_DEFAULT, "PyExc_SystemExit"));
    if (type.get() == nullptr || is_none(python, value.get()) || traceback.get() == nullptr || thread.get() == nullptr) return false;
    if (ends_quietly == nullptr || type.get() == *ends_quietly) return false;
    record(python, {type.get(), value.get(), traceback.get(), thread.get()});
    return true;
  });
  return original_thread_hook(module, argument);
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

// Before `_thread` exists, so that all its functions find the code in this table.
void lead_threads_to_us(Object* module) {
  void* type = dlsym(RTLD_DEFAULT, "PyModuleDef_Type");
  if (module == nullptr || type == nullptr || module->type != type) return;
  for (Method* method = static_cast<ModuleDefinition*>(module)->methods; method != nullptr && method->name != nullptr; method++) {
    if (strcmp(method->name, "_excepthook") != 0 || method->flags != kOneArgument) continue;
    original_thread_hook = reinterpret_cast<ThreadHook>(method->function);
    if (!store(&method->function, reinterpret_cast<void*>(on_thread_exception))) original_thread_hook = nullptr;
    return;
  }
}

// In place of the function that returns the definition of the module `_thread`: the interpreter starts.
void* start_thread() {
  void* module = original_thread_start();
  if (original_thread_hook == nullptr) lead_threads_to_us(static_cast<Object*>(module));
  return module;
}

// In place of the function that creates the module `posix`: the interpreter starts, or one more in the same process.
void* start_posix() {
  if (original_hook == nullptr) lead_to_us();
  return original_start();
}

}  // namespace

void watch_python_exceptions() noexcept {
  if (&PyImport_Inittab == nullptr || PyImport_Inittab == nullptr || g_box.header->python_minor == 0) return;
  auto replace = [](PyImportEntry& entry, void* (*&original)(), void* (*ours)()) {
    original = entry.start;
    store(reinterpret_cast<void**>(&entry.start), reinterpret_cast<void*>(ours));
  };
  for (PyImportEntry* entry = PyImport_Inittab; entry->name != nullptr; entry++) {
    if (entry->start == nullptr) continue;
    if (strcmp(entry->name, "posix") == 0) replace(*entry, original_start, start_posix);
    if (strcmp(entry->name, "_thread") == 0) replace(*entry, original_thread_start, start_thread);
  }
}

void python_exception_recorded(uint64_t exception) noexcept { last.store(exception); }

}  // namespace pytracer::core
