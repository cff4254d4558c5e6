// Python's exceptions as the JSON of journal entries, by the interpreter's own functions: with the GIL, outside of signal handlers.
#pragma once
#include "blackbox/layout.h"

#include <cstddef>
#include <cstdint>

namespace pytracer::core::python {

// PyObject of CPython 3.10 to 3.14, with the GIL.
struct Object {
  uint64_t references;
  void* type;
};

// PyMethodDef and PyCFunctionObject of the same.
struct Method {
  const char* name;
  void* function;
  int flags;
  const char* text;
};
struct BuiltIn : Object {
  Method* method;
};

constexpr size_t kMostMessage = 4000, kMostText = 500;  // characters as in record/torch/exceptions.py, at most 4 bytes each
constexpr size_t kMostContexts = 4;                     // exceptions that were being handled

/// What is called of the interpreter, looked up where it is needed: most processes have none.
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

  bool find() noexcept;
};

/// A new reference, or null: then no error is set.
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

/// JSON in memory of our own. Text that does not fit is cut between characters.
struct Json {
  char* at;
  char* end;

  void raw(const char* text) noexcept;
  void number(long value) noexcept;
  void escaped(const char* text, size_t nbytes, size_t characters) noexcept;
};

bool is_none(Object* object) noexcept;

/// str() of an object or an attribute, in UTF-8; false where it cannot be made.
bool add_text(const Python& python, Json& json, Object* object, size_t characters) noexcept;
bool add_attribute(const Python& python, Json& json, Object* of, const char* name, size_t characters = kMostText) noexcept;

/// {"function","file","line"} of a frame at a line, an int object.
void add_frame(const Python& python, Json& json, Object* frame, Object* line) noexcept;

/// A frame that runs, at its line, and those that called it: innermost first.
void add_stack_of(const Python& python, Json& json, Object* innermost) noexcept;

/// "type", "message" and "python_stack", innermost first.
void add_exception(const Python& python, Json& json, Object* type, Object* value, Object* traceback) noexcept;

/// What was being handled when the exception was raised, and so on: what Python prints before it.
void add_contexts(const Python& python, Json& json, Object* value, size_t most = kMostContexts) noexcept;

/// The same with the exception itself as the first one.
void add_handled(const Python& python, Json& json, Object* value, size_t most = kMostContexts) noexcept;

/// A journal entry: `{`, what `write` writes, `]}`. It is written in memory for the moment: a static buffer would count in every process,
/// where a limit of locked memory or address space counts all.
using Write = void(const Python& python, Json& json, const void* about);
void append_json(blackbox::EntryKind kind, const Python& python, const void* about, Write* write) noexcept;

/// Stores a pointer by the kernel, through a pipe: it refuses where the table cannot be written, instead of a fault. process_vm_writev() is
/// forbidden in many containers.
bool store(void** to, void* value) noexcept;

constexpr int kFastCall = 0x80;  // METH_FASTCALL
/// The arguments of a built-in function of that kind.
using FastCall = Object* (*)(Object * module, Object* const* arguments, intptr_t count);

/// Leads CPython's own function of `sys` to ours. Returns the original; null, and nothing has changed, when it is another one.
FastCall lead_sys_function(const char* name, FastCall ours) noexcept;

}  // namespace pytracer::core::python
