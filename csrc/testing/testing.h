// Test-only: what the files of libpytracer_testing share. Built by tests/native, never packaged.
#pragma once
#include "blackbox/layout.h"
#include "core/core.h"

#include <barrier>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

/// Faults at `addr`; stays on the stack as a frame of its own.
EXPORT void testing_read(uint64_t addr);

namespace testing {

template <class Work>
void on_threads(uint32_t count, Work work) {
  std::barrier start(count);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < count; t++)
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      work(t);
    });
  for (auto& thread : threads) thread.join();
}

inline void mark(uint32_t thread, uint64_t n) {
  std::string text = std::to_string(thread) + " " + std::to_string(n);
  pytracer_mark(text.data(), text.size());
}

inline uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000ull + static_cast<uint64_t>(t.tv_nsec);
}

// Where the byte at an offset of the recording's file is mapped; null: nowhere.
inline char* mapped_at(uint64_t wanted) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[8192];
  char* found = nullptr;
  while (maps != nullptr && found == nullptr && fgets(line, sizeof line, maps) != nullptr) {
    unsigned long start, end, offset;
    bool ours = sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && strstr(line, pytracer_black_box_path()) != nullptr;
    if (ours && offset <= wanted && wanted - offset < end - start) found = reinterpret_cast<char*>(start + (wanted - offset));
  }
  if (maps != nullptr) fclose(maps);
  return found;
}

inline void chain(int signal, void (*function)(int, siginfo_t*, void*)) {
  struct sigaction action{};
  action.sa_sigaction = function;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(signal, &action, nullptr);
}

}  // namespace testing
