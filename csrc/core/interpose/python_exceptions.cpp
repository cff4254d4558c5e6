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

#include "core/interpose/exception_json.h"
#include "core/interpose/exit_requests.h"
#include "core/process/recorder.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/platform/sys.h"

#include <dlfcn.h>
#include <atomic>
#include <cerrno>
#include <cstring>

extern "C" {
struct PyImportEntry {
  const char* name;
  void* (*start)();
};
extern PyImportEntry* PyImport_Inittab __attribute__((weak));
}

namespace pytracer::core {
namespace {

using namespace python;

constexpr uint32_t kMostExceptions = 32;  // of one process: an interactive one goes on after each
constexpr int kOneArgument = 0x08;        // METH_O

using ThreadHook = Object* (*)(Object * module, Object* argument);

// PyModuleDef of CPython 3.10 to 3.14, with the GIL.
struct ModuleDefinition : Object {
  void* base[3];
  const char* name;
  const char* text;
  intptr_t size;
  Method* methods;
};

std::atomic<bool> busy{false};
std::atomic<uint32_t> recorded{0}, threads_recorded{0};
std::atomic<uint64_t> last{0};  // the exception that the Python half has recorded
FastCall original_hook = nullptr;
ThreadHook original_thread_hook = nullptr;
void* (*original_start)() = nullptr;
void* (*original_thread_start)() = nullptr;

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
  if (!is_none(thread)) add_attribute(python, json, thread, "name");
  json.raw("\",");
}

void write_down(const Python& python, Json& json, const void* about) {
  const auto& error = *static_cast<const Uncaught*>(about);
  add_thread(python, json, error.thread);
  add_exception(python, json, error.type, error.value, error.traceback);
  json.raw(",\"context\":[");
  add_contexts(python, json, error.value);
}

void record(const Python& python, const Uncaught& error) {
  auto kind = error.thread != nullptr ? blackbox::EntryKind::kThreadException : blackbox::EntryKind::kException;
  append_json(kind, python, &error, write_down);
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
    if (type.get() == nullptr || is_none(value.get()) || traceback.get() == nullptr || thread.get() == nullptr) return false;
    if (ends_quietly == nullptr || type.get() == *ends_quietly) return false;
    record(python, {type.get(), value.get(), traceback.get(), thread.get()});
    return true;
  });
  return original_thread_hook(module, argument);
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
  if (original_hook == nullptr) {
    original_hook = lead_sys_function("excepthook", on_exception);
    watch_exit_requests();
  }
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
