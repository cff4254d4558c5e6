// What a dying process and the launcher's helper send each other: messages on a SOCK_SEQPACKET socket in the run directory.
// Shared by the core and the helper program, which are built together.
//
//   process -> helper   connects; the kernel identifies it
//   helper -> process   HelperHello
//   process -> helper   HelperRequest with the number of the hello, in a message that the kernel signs with the sender's pid
//   helper -> process   HelperAnswer, then `count` times HelperThread
//   process -> helper   the end of its sending side: the threads may continue; or one more byte: they stay stopped until the process is gone
//   helper -> process   the end of the connection: they continue
#pragma once
#include <cstdint>
#include <type_traits>

namespace pytracer {

inline constexpr const char* kHelperSocketName = "helper.sock";
inline constexpr uint64_t kHelperMagic = 0x32706c6568727470;  // "ptrhelp2"
inline constexpr uint32_t kHelperThreads = 256;

struct HelperHello {
  uint64_t magic;
  uint64_t number;  ///< random: a process that sends it back was alive after the helper looked up its pid
};

struct HelperRequest {
  uint64_t magic;
  uint64_t number;
  int32_t tid;  ///< the requesting thread, which is not to be stopped, as gettid() returns it
  uint32_t reserved;
};

struct HelperAnswer {
  uint64_t magic;
  int32_t error;   ///< errno; nothing is stopped then
  uint32_t total;  ///< other threads that are alive
  uint32_t count;  ///< HelperThread that follow, at most kHelperThreads
  uint32_t reserved;
};

/// As in THREAD_STACKS; `tid` is what gettid() returns in the process.
struct HelperThread {
  int32_t tid;
  int32_t syscall;
  uint32_t stopped;
  uint32_t reserved;
  uint64_t pthread;
  char name[16];
  uint64_t registers[34];
};
static_assert(sizeof(HelperHello) == 16 && sizeof(HelperRequest) == 24 && sizeof(HelperAnswer) == 24 && sizeof(HelperThread) == 312);
static_assert(std::is_trivially_copyable_v<HelperThread>);

}  // namespace pytracer
