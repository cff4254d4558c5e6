// Uncaught C++ exceptions, on a thread without a Python state.
#include <dlfcn.h>
#include <pthread.h>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

namespace jobs {

class ShardError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct BadWords : std::exception {
  const char* what() const noexcept override { throw 1; }
};

void out_of_noexcept() noexcept { throw std::out_of_range("bucket 7 of 4"); }
void leave() noexcept { pthread_exit(nullptr); }

void check_of_torch() {
  using Fail = void (*)(const char*, const char*, unsigned, const char*);
  void* torch = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
  auto fail = reinterpret_cast<Fail>(dlsym(torch != nullptr ? torch : RTLD_DEFAULT, "_ZN3c106detail14torchCheckFailEPKcS2_jS2_"));
  if (fail == nullptr) _Exit(90);
  fail("exchange", "exchange.cpp", 17, "expected 4 ranks, got 3");
}

std::terminate_handler before = nullptr;
void note_and_pass_on() {
  fputs("the program's own handler\n", stderr);
  before();
}
void note_and_abort() {
  fputs("the program's own handler\n", stderr);
  abort();
}

void run(const std::string& way) {
  if (way == "runtime_error") throw ShardError("shard 3 has 12 bytes, expected 4096");
  if (way == "noexcept") out_of_noexcept();
  if (way == "no exception") std::terminate();
  if (way == "number") throw 42;
  if (way == "long") throw std::runtime_error(std::string(10000, 'x'));
  if (way == "bad words") throw BadWords();
  if (way == "torch") check_of_torch();
  if (way == "pthread_exit") leave();
  if (way == "inside catch") {
    try {
      throw std::logic_error("in hand");
    } catch (...) {
      std::terminate();
    }
  }
}

}  // namespace jobs

extern "C" void own_handler(int pass_on) { jobs::before = std::set_terminate(pass_on ? jobs::note_and_pass_on : jobs::note_and_abort); }
extern "C" void on_thread(const char* way) {
  std::thread([way] { jobs::run(way); }).join();
}
