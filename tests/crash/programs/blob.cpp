// A third-party library that passes its memory to torch, loaded after recording started. ATen's from_blob, with a deleter.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>

#include <sys/mman.h>

static at::Tensor kept;
static int times_deleted = 0;

extern "C" void* make(size_t nbytes) {
  void* memory = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  kept = at::from_blob(memory, {static_cast<int64_t>(nbytes)}, [nbytes](void* data) { times_deleted += munmap(data, nbytes) == 0; }, at::kByte);
  return memory;
}

// Lives until the library's destructors run, after Python has ended.
extern "C" void keep_one_of_torchs() { kept = at::ones({1000}); }

extern "C" int deleted() { return times_deleted; }

extern "C" void drop() { kept = at::Tensor(); }
