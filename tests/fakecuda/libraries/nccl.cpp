// libnccl.so.2: ranks really wait for each other, through a file that they all map; data are not exchanged but taken from the
// rank's own input, as if all ranks had the same. A collective's gate opens when every rank has called as many collectives.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define FAKENCCL_API extern "C" __attribute__((visibility("default")))
extern "C" void fakecuda_gate(cudaStream_t stream, bool (*until)(const void*), const void* argument);

namespace {

constexpr int kRanks = 16, kVersion = 23007, kSplits = 64;
constexpr int kSuccess = 0, kSystemError = 2, kInvalidArgument = 4;
constexpr int kWaitMs = 120'000;  // for ranks that never create the communicator
constexpr size_t kTypeBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

struct UniqueId {
  char name[128];
};
struct Split {
  std::atomic<uint32_t> arrived;
  std::atomic<int32_t> color[kRanks], key[kRanks];
};
struct Shared {
  std::atomic<uint32_t> joined;
  std::atomic<uint64_t> calls[kRanks];         // collectives that the rank has called
  std::atomic<uint64_t> sent[kRanks][kRanks];  // messages, from and to
  Split splits[kSplits];
};
// Never freed: gates point to it.
struct Communicator {
  Shared* shared;
  char name[96];
  int size, rank, splits;
  uint64_t received[kRanks];
  std::atomic<bool> aborted;
};
struct Waiting {
  const Communicator* communicator;
  int peer;  // -1: all ranks
  uint64_t number;
};

bool has_come(const void* argument) {
  const auto& waiting = *static_cast<const Waiting*>(argument);
  const Communicator& c = *waiting.communicator;
  if (c.aborted.load()) return true;
  if (waiting.peer >= 0) return c.shared->sent[waiting.peer][c.rank].load() >= waiting.number;
  for (int i = 0; i < c.size; i++)
    if (c.shared->calls[i].load() < waiting.number) return false;
  return true;
}

template <class Condition>
bool wait_until(Condition condition) {
  for (int ms = 0; ms < kWaitMs; ms++) {
    if (condition()) return true;
    timespec t{0, 1'000'000};
    nanosleep(&t, nullptr);
  }
  return false;
}

int join(Communicator** out, const char* name, int size, int rank) {
  if (size > kRanks) return kInvalidArgument;
  const char* directory = getenv("TMPDIR");
  char path[512];
  snprintf(path, sizeof path, "%s/%s", directory != nullptr ? directory : "/tmp", name);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* at = fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0 ? mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (fd >= 0) close(fd);
  if (at == MAP_FAILED) return kSystemError;
  auto* c = new Communicator{};
  c->shared = static_cast<Shared*>(at);
  c->size = size;
  c->rank = rank;
  snprintf(c->name, sizeof c->name, "%s", name);
  if (c->shared->joined.fetch_add(1) + 1 == static_cast<uint32_t>(size)) unlink(path);
  if (!wait_until([&] { return c->shared->joined.load() >= static_cast<uint32_t>(size); })) return kSystemError;
  *out = c;
  return kSuccess;
}

void collective(Communicator* c, cudaStream_t stream) {
  uint64_t number = c->shared->calls[c->rank].fetch_add(1) + 1;
  if (c->size > 1) fakecuda_gate(stream, has_come, new Waiting{c, -1, number});
}

int take(void* to, const void* from, size_t nbytes, Communicator* c, cudaStream_t stream) {
  if (to != from && to != nullptr) cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDeviceToDevice, stream);
  collective(c, stream);
  return kSuccess;
}

}  // namespace

FAKENCCL_API int ncclGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}
FAKENCCL_API int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<unsigned> made{0};
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  memset(id, 0, sizeof *id);
  snprintf(id->name, sizeof id->name, "fakenccl-%d-%u-%llx", getpid(), made++,
           static_cast<unsigned long long>(t.tv_sec * 1'000'000'000ll + t.tv_nsec));
  return kSuccess;
}
FAKENCCL_API int ncclCommInitRank(Communicator** c, int size, UniqueId id, int rank) { return join(c, id.name, size, rank); }
FAKENCCL_API int ncclCommInitRankConfig(Communicator** c, int size, UniqueId id, int rank, void*) { return join(c, id.name, size, rank); }
FAKENCCL_API int ncclCommInitRankScalable(Communicator** c, int size, int rank, int, UniqueId* ids, void*) { return join(c, ids->name, size, rank); }
FAKENCCL_API int ncclCommSplit(Communicator* parent, int color, int key, Communicator** c, void*) {
  *c = nullptr;
  if (parent->splits >= kSplits) return kInvalidArgument;
  int number = parent->splits++;
  Split& split = parent->shared->splits[number];
  split.color[parent->rank] = color;
  split.key[parent->rank] = key;
  split.arrived++;
  if (!wait_until([&] { return split.arrived.load() >= static_cast<uint32_t>(parent->size); })) return kSystemError;
  if (color < 0) return kSuccess;
  int size = 0, rank = 0;
  for (int i = 0; i < parent->size; i++) {
    if (split.color[i] != color) continue;
    size++;
    rank += split.key[i] < key || (split.key[i] == key && i < parent->rank);
  }
  char name[96];
  snprintf(name, sizeof name, "%.60s-%d-%d", parent->name, number, color);
  return join(c, name, size, rank);
}
FAKENCCL_API int ncclCommAbort(Communicator* c) {
  if (c != nullptr) c->aborted = true;
  return kSuccess;
}
FAKENCCL_API int ncclCommCount(Communicator* c, int* count) {
  *count = c->size;
  return kSuccess;
}
FAKENCCL_API int ncclCommUserRank(Communicator* c, int* rank) {
  *rank = c->rank;
  return kSuccess;
}
FAKENCCL_API int ncclCommGetAsyncError(Communicator*, int* error) {
  *error = kSuccess;
  return kSuccess;
}
FAKENCCL_API const char* ncclGetErrorString(int) { return "fake nccl error"; }
FAKENCCL_API const char* ncclGetLastError(void*) { return ""; }

FAKENCCL_API int ncclAllReduce(void* from, void* to, size_t count, int type, int, Communicator* c, cudaStream_t stream) {
  return take(to, from, count * kTypeBytes[type], c, stream);
}
FAKENCCL_API int ncclReduce(void* from, void* to, size_t count, int type, int, int, Communicator* c, cudaStream_t stream) {
  return take(to, from, count * kTypeBytes[type], c, stream);
}
FAKENCCL_API int ncclBroadcast(void* from, void* to, size_t count, int type, int root, Communicator* c, cudaStream_t stream) {
  return take(c->rank == root ? to : nullptr, from, count * kTypeBytes[type], c, stream);
}
FAKENCCL_API int ncclBcast(void*, size_t, int, int, Communicator* c, cudaStream_t stream) {
  collective(c, stream);
  return kSuccess;
}
FAKENCCL_API int ncclAllGather(char* from, char* to, size_t count, int type, Communicator* c, cudaStream_t stream) {
  size_t nbytes = count * kTypeBytes[type];
  for (int i = 0; i < c->size; i++)
    if (to + static_cast<size_t>(i) * nbytes != from)
      cudaMemcpyAsync(to + static_cast<size_t>(i) * nbytes, from, nbytes, cudaMemcpyDeviceToDevice, stream);
  collective(c, stream);
  return kSuccess;
}
FAKENCCL_API int ncclReduceScatter(char* from, char* to, size_t count, int type, int, Communicator* c, cudaStream_t stream) {
  size_t nbytes = count * kTypeBytes[type];
  return take(to, from + static_cast<size_t>(c->rank) * nbytes, nbytes, c, stream);
}
FAKENCCL_API int ncclSend(const void*, size_t, int, int peer, Communicator* c, cudaStream_t) {
  c->shared->sent[c->rank][peer]++;
  return kSuccess;
}
FAKENCCL_API int ncclRecv(void*, size_t, int, int peer, Communicator* c, cudaStream_t stream) {
  fakecuda_gate(stream, has_come, new Waiting{c, peer, ++c->received[peer]});
  return kSuccess;
}
