// Every way of access of the generated crashes, on threads that Python did not start, too. Nothing here checks anything.
#include <immintrin.h>
#include <omp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#define EXPORT extern "C" __attribute__((visibility("default"), noinline))

// ---- ways of access: (pointer, index or count) ----

EXPORT int load(const volatile int* at, long) { return *at; }
EXPORT void store(volatile int* at, long) { *at = 7; }
EXPORT int load_field(const volatile int* at, long) { return at[6]; }
EXPORT double load_index(const volatile double* at, long index) { return at[index]; }
EXPORT void store_index(volatile float* at, long index) { at[index] = 1.0F; }
EXPORT int load_byte_index(const volatile char* at, long index) { return at[index]; }
// The sum is made before the access, as compilers do when they need it twice.
EXPORT int load_folded(const int* at, long index) {
  const volatile int* sum = at + index;
  __asm__ volatile("" : "+r"(sum));
  return *sum;
}
EXPORT void store_folded(double* at, long index) {
  volatile double* sum = at + index;
  __asm__ volatile("" : "+r"(sum));
  *sum = 1.0;
}
// The index comes from the memory of another tensor.
EXPORT void gather(const float* at, const int64_t* indices, long count, float* out) {
  for (long i = 0; i < count; i++) out[i] = at[indices[i]];
}
EXPORT void scatter(float* at, const int64_t* indices, long count, const float* values) {
  for (long i = 0; i < count; i++) at[indices[i]] += values[i];
}
EXPORT int vector(const void* at, long) {
  __m128i value = _mm_loadu_si128(static_cast<const __m128i*>(at));
  return _mm_cvtsi128_si32(value);
}
EXPORT __attribute__((target("avx"))) int vector_aligned(const void* at, long) {
  __m256i value;
  __asm__ volatile("vmovdqa %1, %0" : "=x"(value) : "m"(*static_cast<const __m256i*>(at)));
  return _mm256_extract_epi32(value, 0);
}
EXPORT void vector_store_aligned(void* at, long) { _mm_store_si128(static_cast<__m128i*>(at), _mm_set1_epi32(1)); }
EXPORT long sum_up(const volatile int* at, long count) {
  long sum = 0;
  for (long i = 0; i < count; i++) sum += at[i];
  return sum;
}
EXPORT void fill_up(volatile int* at, long count) {
  for (long i = 0; i < count; i++) at[i] = 1;
}
EXPORT long sum_down(const volatile int* at, long count) {
  long sum = 0;
  for (long i = 0; i < count; i++) sum += at[-i];
  return sum;
}
EXPORT void fill_down(volatile int* at, long count) {
  for (long i = 0; i < count; i++) at[-i] = 1;
}
EXPORT long sum_stack(void*, long count) {  // beyond an array on the stack
  volatile int rows[64];
  rows[0] = 1;
  volatile int* at = rows;
  __asm__ volatile("" : "+r"(at));
  long sum = 0;
  for (long i = 0; i < count; i++) sum += at[i];
  return sum;
}
EXPORT void clear(void* at, long count) { memset(at, 0, static_cast<size_t>(count)); }
EXPORT void clear_by_string(void* at, long count) {
  __asm__ volatile("rep stosb" : "+D"(at), "+c"(count) : "a"(0) : "memory");
}
static char buffer[1 << 16];
EXPORT void copy_out(const void* at, long count) { memcpy(buffer, at, static_cast<size_t>(count) & (sizeof buffer - 1)); }
EXPORT void copy_in(void* at, long count) { memcpy(at, buffer, static_cast<size_t>(count) & (sizeof buffer - 1)); }

// ---- deaths that need no memory ----

#pragma GCC diagnostic ignored "-Winfinite-recursion"
#pragma GCC diagnostic ignored "-Wfree-nonheap-object"
EXPORT long recurse(volatile char* node, long levels) {
  volatile char level[512];
  memset(const_cast<char*>(level), *node, sizeof level);
  return recurse(level, levels + 1) + level[17];
}
EXPORT void call_pointer(void* at, long) { reinterpret_cast<void (*)()>(at)(); }
__attribute__((noinline)) static void copy_name(char* into, size_t nbytes) { memset(into, 0x41, nbytes); }
EXPORT void smash_return(void*, long count) {
  char name[16];
  copy_name(name, sizeof name + static_cast<size_t>(count));
}
EXPORT void call_abort(void*, long) { abort(); }
EXPORT void fail_assertion(void*, long count) {

  __assert_fail("rows == labels", "loader.cpp", static_cast<unsigned>(count), "void collate()");
}
#pragma GCC diagnostic ignored "-Wterminate"
EXPORT void leave_exception(void*, long) noexcept { throw std::runtime_error("sizes of buckets differ"); }
EXPORT void undefined_instruction(void*, long) { __builtin_trap(); }
EXPORT long divide(void*, long by) {
  volatile int zero = static_cast<int>(by - by), value = 12;
  return value / zero;
}
EXPORT void free_twice(void*, long count) {
  char* volatile block = static_cast<char*>(malloc(static_cast<size_t>(count)));
  free(block);
  free(block);
}
EXPORT void free_inside(void*, long count) {
  char* volatile block = static_cast<char*>(malloc(static_cast<size_t>(count)));
  free(block + 16);
}
EXPORT void overflow_block(void*, long count) {  // the next block's size is damaged; free() of it notices
  constexpr size_t kSize = 2040, kDistance = 2048;
  char* blocks[256];
  for (char*& block : blocks) block = static_cast<char*>(malloc(kSize));
  for (int i = 0; i + 1 < 256; i++) {
    if (blocks[i] + kDistance != blocks[i + 1]) continue;
    memset(blocks[i], 0x5a, kSize + static_cast<size_t>(count));
    __asm__ volatile("" ::: "memory");
    break;
  }
  for (char* block : blocks) free(block);
}
EXPORT void free_foreign(void* at, long) { free(at); }

// ---- memory ----

EXPORT void* map_memory(long nbytes, int writable) {
  void* at = mmap(nullptr, static_cast<size_t>(nbytes), writable ? PROT_READ | PROT_WRITE : PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}
EXPORT int unmap_memory(void* at, long nbytes) { return munmap(at, static_cast<size_t>(nbytes)); }
EXPORT int protect_memory(void* at, long nbytes, int protection) { return mprotect(at, static_cast<size_t>(nbytes), protection); }

// ---- threads: made before the memory is laid out, since a stack would fill its hole ----

struct Plan {
  void (*way)(void*, long);
  void* at;
  long count;
};
static Plan plan;
static pthread_t thread;
static sem_t may_go;

EXPORT void plan_access(void (*way)(void*, long), void* at, long count) { plan = {way, at, count}; }

static void* thread_main(void*) {
  pthread_setname_np(pthread_self(), "prefetch");
  free(malloc(100));  // its arena
  while (sem_wait(&may_go) != 0) {}
  plan.way(plan.at, plan.count);
  return nullptr;
}
EXPORT void start_native_thread() {
  sem_init(&may_go, 0, 0);
  pthread_create(&thread, nullptr, thread_main, nullptr);
  usleep(2000);
}
EXPORT void go_on_native_thread() {
  sem_post(&may_go);
  pthread_join(thread, nullptr);
}
static void on_worker(void (*run)()) {
#pragma omp parallel num_threads(2)
  if (omp_get_thread_num() == 1) run();
}
EXPORT void start_openmp() {
  on_worker([] { free(malloc(100)); });
}
EXPORT void go_on_openmp_worker() {
  on_worker([] { plan.way(plan.at, plan.count); });
}
// Recursion through a callback into Python, for overflows below Python frames.
EXPORT long call_back(long (*again)(long), long depth) {
  volatile char room[256];
  room[depth & 255] = 1;
  return again(depth + 1) + room[3];
}
