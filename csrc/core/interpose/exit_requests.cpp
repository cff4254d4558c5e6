// The interpreter ends in order after SystemExit, and forgets where it came from: exit() sees no line of the program any more.
//
// sys.exit() is found by a pointer in a table of CPython's, as sys.excepthook is (python_exceptions.cpp). `raise SystemExit` and exit()
// make the object by a function in the type, which is replaced in the same way; `SystemExit.__init__` stays the original. CPython 3.12
// makes the object within sys.exit(), earlier ones later and elsewhere, if at all: that object is not a second request.
//
// A request may be caught. Only one with the status that the process ended with is taken for its end.
#include "core/interpose/exit_requests.h"

#include "core/interpose/exception_json.h"
#include "core/process/recorder.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/platform/sys.h"

#include <dlfcn.h>
#include <atomic>
#include <cerrno>

namespace pytracer::core {
namespace {

using namespace python;

constexpr uint32_t kMostRequests = 32;         // of one process: a test runner catches one after the other
constexpr int kInitSlot = 60, kInitWord = 37;  // Py_tp_init; its place in PyTypeObject, with the GIL
constexpr long kFailed = 1;                    // the status for a text

using Init = int (*)(Object* self, Object* arguments, Object* named);

// What is called of the interpreter besides.
struct Interpreter {
  Object* (*frame)();                                                  // that runs, borrowed
  void (*handled)(Object** type, Object** value, Object** traceback);  // new references, which may be null
  intptr_t (*tuple_size)(Object*);
  Object* (*tuple_item)(Object*, intptr_t);
  void *integer, *boolean, *text;  // types
};

struct Request {
  Object* code;  // as it was given; null for none
  long status;
  bool has_text;
  Object* handled;  // the exception
};

Interpreter interpreter;
FastCall original_exit = nullptr;
Init original_init = nullptr;
uint32_t recorded = 0;  // with the GIL, as the rest
bool busy = false;
Object* passed_on = nullptr;        // what sys.exit() was given, until SystemExit is made of it
const Object kNothing{0, nullptr};  // in its place where it was given nothing

template <class Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

void write_request(const Python& python, Json& json, const void* about) {
  const auto& request = *static_cast<const Request*>(about);
  json.raw("\"status\":");
  json.number(request.status);
  json.raw(",\"message\":\"");
  if (request.has_text) add_text(python, json, request.code, kMostMessage);
  json.raw("\",\"python_stack\":[");
  add_stack_of(python, json, interpreter.frame());
  json.raw("],\"context\":[");
  if (!is_none(request.handled)) add_handled(python, json, request.handled);
}

// What the program was handling: its text is made by the program's own code, which only a failure is worth.
void record_with_handled(const Python& python, Request request) {
  if (request.status == 0) {
    append_json(blackbox::EntryKind::kExitRequest, python, &request, write_request);
    return;
  }
  Object *type = nullptr, *value = nullptr, *traceback = nullptr;
  interpreter.handled(&type, &value, &traceback);
  request.handled = value;
  append_json(blackbox::EntryKind::kExitRequest, python, &request, write_request);
  for (Object* object : {type, value, traceback})
    if (object != nullptr) python.release(object);
}

// Of the main thread: others end alone. A status that is no int or text would need code of the program's to be read.
void record(Object* code) {
  if (!recording() || stopped() || busy || recorded >= kMostRequests) return;
  if (crashsafe::sys_getpid() != g_box_pid || crashsafe::sys_gettid() != g_box_pid) return;
  int before = errno;
  Request request{code, 0, false, nullptr};
  Python python;
  if (!python.find()) return;
  if (!is_none(code)) {
    bool is_number = code->type == interpreter.integer || code->type == interpreter.boolean;
    request.status = is_number ? python.number(code) & 0xff : kFailed;
    request.has_text = code->type == interpreter.text;
    python.forget_error();  // of an int that is no long
  }
  if (request.status == 0 && !crashsafe::has_box()) return;  // everyday: no reason for a recording
  busy = true;
  recorded++;
  record_with_handled(python, request);
  busy = false;
  errno = before;
}

// In place of the code of sys.exit(), with the GIL and no error set.
Object* on_exit(Object* module, Object* const* arguments, intptr_t count) {
  if (count <= 1) {
    record(count == 1 ? arguments[0] : nullptr);
    passed_on = count == 1 && !is_none(arguments[0]) ? arguments[0] : const_cast<Object*>(&kNothing);
  }
  return original_exit(module, arguments, count);
}

// In place of the function that fills a new SystemExit.
int on_init(Object* self, Object* arguments, Object* named) {
  intptr_t count = interpreter.tuple_size(arguments);
  Object* code = count == 1 ? interpreter.tuple_item(arguments, 0) : nullptr;
  bool again = passed_on != nullptr && (is_none(code) ? passed_on == &kNothing : passed_on == code);
  passed_on = nullptr;
  if (!again && count <= 1) record(code);
  return original_init(self, arguments, named);
}

void lead_init_to_us() {
  void* (*slot)(void*, int);
  auto* type = static_cast<void**>(dlsym(RTLD_DEFAULT, "PyExc_SystemExit"));  // a pointer to the type
  if (type == nullptr || *type == nullptr || !find(slot, "PyType_GetSlot")) return;
  auto** words = static_cast<void**>(*type);
  void* init = slot(*type, kInitSlot);
  if (init == nullptr || words[kInitWord] != init) return;
  original_init = reinterpret_cast<Init>(init);
  if (!store(&words[kInitWord], reinterpret_cast<void*>(on_init))) original_init = nullptr;
}

}  // namespace

void watch_exit_requests() noexcept {
  bool known = find(interpreter.frame, "PyEval_GetFrame") && find(interpreter.handled, "PyErr_GetExcInfo") &&
               find(interpreter.tuple_size, "PyTuple_Size") && find(interpreter.tuple_item, "PyTuple_GetItem") &&
               find(interpreter.integer, "PyLong_Type") && find(interpreter.boolean, "PyBool_Type") && find(interpreter.text, "PyUnicode_Type");
  if (!known) return;
  if (original_exit == nullptr) original_exit = lead_sys_function("exit", on_exit);
  if (original_init == nullptr) lead_init_to_us();
}

}  // namespace pytracer::core
