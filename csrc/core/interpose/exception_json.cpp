#include "core/interpose/exception_json.h"

#include "core/file/journal.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstring>
#include <type_traits>

namespace pytracer::core::python {
namespace {

constexpr size_t kFrames = 64, kContextBytes = 32 << 10, kEntryBytes = 96 << 10;
constexpr size_t kFrameBytes = 8192;  // that one frame needs at most

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

// Innermost first: the last ones of the chain.
void add_stack(const Python& python, Json& json, Object* traceback) {
  Object* frames[kFrames];
  size_t count = 0;
  for (Object* at = traceback; !is_none(at);) {
    frames[count++ % kFrames] = at;
    Reference next(python, python.attribute(at, "tb_next"));
    at = next.get();  // kept alive by the one before
  }
  size_t kept = count < kFrames ? count : kFrames;
  for (size_t i = 0; i < kept && json.end - json.at > static_cast<intptr_t>(kFrameBytes); i++) {
    if (i != 0) json.raw(",");
    Object* at = frames[(count - 1 - i) % kFrames];
    Reference frame(python, python.attribute(at, "tb_frame")), line(python, python.attribute(at, "tb_lineno"));
    add_frame(python, json, frame.get(), line.get());
  }
}

// What was being handled when the exception was raised, and so on: what Python prints before it. A new reference.
Object* handled_before(const Python& python, Object* value) {
  Reference cause(python, python.attribute(value, "__cause__")), hidden(python, python.attribute(value, "__suppress_context__"));
  if (is_none(cause.get()) && (hidden.get() == nullptr || python.is_true(hidden.get()) != 0)) return nullptr;
  Object* before = python.attribute(value, is_none(cause.get()) ? "__context__" : "__cause__");
  if (before == nullptr) python.forget_error();
  return before;
}

}  // namespace

bool Python::find() noexcept {
  auto find = [](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
  };
  return find(attribute, "PyObject_GetAttrString") && find(text_of, "PyObject_Str") && find(encoded, "PyUnicode_AsEncodedString") &&
         find(bytes, "PyBytes_AsString") && find(size, "PyBytes_Size") && find(number, "PyLong_AsLong") && find(release, "Py_DecRef") &&
         find(is_true, "PyObject_IsTrue") && find(forget_error, "PyErr_Clear");
}

void Json::raw(const char* text) noexcept {
  for (; *text != 0 && at < end; text++) *at++ = *text;
}

void Json::number(long value) noexcept {
  char digits[24];
  size_t n = sizeof digits;
  digits[--n] = 0;
  do digits[--n] = static_cast<char>('0' + value % 10);
  while ((value /= 10) > 0);
  raw(digits + n);
}

void Json::escaped(const char* text, size_t nbytes, size_t characters) noexcept {
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

bool add_text(const Python& python, Json& json, Object* object, size_t characters) noexcept {
  Reference text(python, object != nullptr ? python.text_of(object) : nullptr);
  Reference bytes(python, text.get() != nullptr ? python.encoded(text.get(), "utf-8", "backslashreplace") : nullptr);
  if (bytes.get() == nullptr) return false;
  json.escaped(python.bytes(bytes.get()), static_cast<size_t>(python.size(bytes.get())), characters);
  return true;
}

bool add_attribute(const Python& python, Json& json, Object* of, const char* name, size_t characters) noexcept {
  Reference value(python, of != nullptr ? python.attribute(of, name) : nullptr);
  return value.get() != nullptr && add_text(python, json, value.get(), characters);
}

bool is_none(Object* object) noexcept {
  static Object* none = static_cast<Object*>(dlsym(RTLD_DEFAULT, "_Py_NoneStruct"));
  return object == nullptr || object == none;
}

void add_frame(const Python& python, Json& json, Object* frame, Object* line) noexcept {
  Reference code(python, frame != nullptr ? python.attribute(frame, "f_code") : nullptr);
  json.raw("{\"function\":\"");
  if (!add_attribute(python, json, code.get(), "co_qualname")) add_attribute(python, json, code.get(), "co_name");  // 3.10 has no co_qualname
  json.raw("\",\"file\":\"");
  add_attribute(python, json, code.get(), "co_filename");
  json.raw("\",\"line\":");
  long number = is_none(line) ? 0 : python.number(line);
  if (number > 0)
    json.number(number);
  else
    json.raw("null");
  json.raw("}");
}

void add_stack_of(const Python& python, Json& json, Object* innermost) noexcept {
  // Each frame is kept alive by the one further in, and the innermost one by the interpreter.
  Object* at = innermost;
  for (size_t i = 0; i < kFrames && !is_none(at) && json.end - json.at > static_cast<intptr_t>(kFrameBytes); i++) {
    Reference line(python, python.attribute(at, "f_lineno"));
    if (i != 0) json.raw(",");
    add_frame(python, json, at, line.get());
    Reference outer(python, python.attribute(at, "f_back"));
    at = outer.get();
  }
}

void add_exception(const Python& python, Json& json, Object* type, Object* value, Object* traceback) noexcept {
  json.raw("\"type\":\"");
  add_type(python, json, type);
  json.raw("\",\"message\":\"");
  if (!add_text(python, json, value, kMostMessage)) json.raw("(its message could not be made)");
  json.raw("\",\"python_stack\":[");
  add_stack(python, json, traceback);
  json.raw("]");
}

void add_contexts(const Python& python, Json& json, Object* value, size_t most) noexcept {
  Reference before(python, most != 0 ? handled_before(python, value) : nullptr);
  if (is_none(before.get())) return;
  if (most != kMostContexts) json.raw(",");
  add_handled(python, json, before.get(), most);
}

void add_handled(const Python& python, Json& json, Object* value, size_t most) noexcept {
  if (json.end - json.at < static_cast<intptr_t>(kContextBytes)) return;
  Reference type(python, python.attribute(value, "__class__")), traceback(python, python.attribute(value, "__traceback__"));
  json.raw("{");
  add_exception(python, json, type.get(), value, traceback.get());
  json.raw("}");
  add_contexts(python, json, value, most - 1);
}

void append_json(blackbox::EntryKind kind, const Python& python, const void* about, Write* write) noexcept {
  constexpr intptr_t kEnd = 16;
  void* memory = mmap(nullptr, kEntryBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  auto* buffer = static_cast<char*>(memory);
  Json json{buffer, buffer + kEntryBytes - kEnd};
  json.raw("{");
  write(python, json, about);
  json.end += kEnd;
  json.raw("]}");
  append(kind, buffer, static_cast<size_t>(json.at - buffer));
  munmap(memory, kEntryBytes);
}

bool store(void** to, void* value) noexcept {
  int ends[2];
  if (syscall(SYS_pipe2, ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  bool stored = write(ends[1], &value, sizeof value) == sizeof value && syscall(SYS_read, ends[0], to, sizeof value) == sizeof value;
  syscall(SYS_close, ends[0]);
  syscall(SYS_close, ends[1]);
  return stored;
}

FastCall lead_sys_function(const char* name, FastCall ours) noexcept {
  auto find = reinterpret_cast<Object* (*)(const char*)>(dlsym(RTLD_DEFAULT, "PySys_GetObject"));
  void* type = dlsym(RTLD_DEFAULT, "PyCFunction_Type");
  auto* function = find != nullptr ? static_cast<BuiltIn*>(find(name)) : nullptr;  // borrowed
  if (function == nullptr || type == nullptr || function->type != type) return nullptr;
  Method* method = function->method;
  if (method->flags != kFastCall || strcmp(method->name, name) != 0) return nullptr;
  auto original = reinterpret_cast<FastCall>(method->function);
  return store(&method->function, reinterpret_cast<void*>(ours)) ? original : nullptr;
}

}  // namespace pytracer::core::python
