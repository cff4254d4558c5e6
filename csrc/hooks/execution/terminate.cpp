// std::terminate: the type and the message of an uncaught C++ exception. abort() follows, and its report has neither.
#include "blackbox/layout.h"
#include "core/core.h"
#include "hooks/hooks.h"

#include <cxxabi.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <typeinfo>
#include "hooks/support/python.h"

namespace pytracer::hooks {
namespace {

using blackbox::CppExceptionEntry;

constexpr size_t kTypeBytes = 512, kWhatBytes = 4096;
constexpr const char kHoldsPython[] = "N8pybind1117error_already_setE";  // mangled: its what() takes the GIL

std::terminate_handler previous = nullptr;
bool placed = false;  // ours is the handler, or another one that may call it
bool writing = false;
thread_local bool t_entered __attribute__((tls_model("initial-exec"))) = false;

struct Words {
  CppExceptionEntry head;
  char text[kTypeBytes + kWhatBytes];

  uint32_t add(const char* words, uint32_t at, size_t most) {
    size_t n = words != nullptr ? strnlen(words, most) : 0;
    memcpy(text + at, words, n);
    return static_cast<uint32_t>(n);
  }
};

void add_type(Words& words, const std::type_info& type) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  words.head.type_nbytes = words.add(demangled != nullptr ? demangled : type.name(), 0, kTypeBytes);
  free(demangled);
}

// `throw;` finds the catch below at once, and allocates nothing.
void add_what(Words& words, const std::type_info& type) {
  if (strcmp(type.name(), kHoldsPython) == 0 && PyGILState_Check() == 0) return;
  try {
    throw;
  } catch (const std::exception& error) {
    words.head.what_nbytes = words.add(error.what(), words.head.type_nbytes, kWhatBytes);
  } catch (...) {
  }
}

void write_entry() {
  Words words;
  words.head = {static_cast<int32_t>(syscall(SYS_gettid)), 0, 0, 0};
  // Empty when there is none, and for an exception of another language, whose header abi::__cxa_current_exception_type would misread.
  if (std::current_exception() != nullptr) {
    if (const std::type_info* type = abi::__cxa_current_exception_type()) {
      add_type(words, *type);
      add_what(words, *type);
    }
  }
  pytracer_journal(static_cast<uint32_t>(blackbox::EntryKind::kCppException), &words,
                   sizeof words.head + words.head.type_nbytes + words.head.what_nbytes);
}

// Entered again when what() itself terminates, or when a handler that was set after ours calls it: then the previous one runs.
void on_terminate() {
  if (writing && !t_entered) {
    t_entered = true;
    write_entry();
  }
  if (previous != nullptr) previous();
  abort();
}

const char* install(Level) {
  writing = true;
  if (placed && std::get_terminate() != previous) return nullptr;
  placed = true;
  previous = std::set_terminate(on_terminate);
  return nullptr;
}

// A handler that was set after ours remains, and may call ours, which then only calls the previous one.
void uninstall() {
  writing = false;
  if (std::get_terminate() != on_terminate) return;
  std::set_terminate(previous);
  placed = false;
}

}  // namespace

const Hook kTerminate = {"cpp-exceptions", install, uninstall};

}  // namespace pytracer::hooks
