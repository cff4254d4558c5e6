// Allocates and frees storages as torch does, in a loop without Python: what benchmarks/storages.py times.
#include <c10/core/CPUAllocator.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <thread>
#include <vector>

namespace {

uint64_t cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000ull + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace

// ns of processor time per pair, on the calling thread. Called from Python, its line is the one that allocates.
extern "C" double pairs_here(uint64_t count, size_t nbytes) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  uint64_t begin = cpu_ns();
  for (uint64_t i = 0; i < count; i++) {
    c10::DataPtr data = allocator->allocate(nbytes);
    asm volatile("" : : "r"(data.get()) : "memory");
  }
  return static_cast<double>(cpu_ns() - begin) / static_cast<double>(count);
}

// The same on new threads without Python frames: the mean of all.
extern "C" double pairs_on_threads(uint32_t threads, uint64_t count, size_t nbytes) {
  std::vector<double> results(threads);
  std::vector<std::thread> running;
  for (uint32_t t = 0; t < threads; t++) running.emplace_back([&, t] { results[t] = pairs_here(count, nbytes); });
  for (auto& thread : running) thread.join();
  double sum = 0;
  for (double result : results) sum += result;
  return sum / threads;
}
