#include "core/file/run_directory.h"

#include "core/file/opened.h"
#include "core/file/run_counters.h"
#include "crashsafe/file/identity.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/text/bounded_text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace pytracer::core {
namespace {

PYTRACER_LARGE char directory_[PATH_MAX];
PYTRACER_LARGE char helper_[PATH_MAX];  // the program may change its environment
RunCounters* counters_ = nullptr;

bool make_directory(int below, const char* path) { return mkdirat(below, path, 0700) == 0 || errno == EEXIST; }

// The program and its children may change their working directories.
bool note_directory(const char* directory) {
  size_t used = 0;
  if (directory[0] != '/') {
    if (getcwd(directory_, sizeof directory_ - 1) == nullptr) return false;
    used = strlen(directory_);
    directory_[used++] = '/';
  }
  crashsafe::BoundedText(directory_ + used, sizeof directory_ - used).add(directory);
  return used + strlen(directory) + sizeof "/boxes" <= sizeof directory_;
}

// `boxes/` belongs to us alone, and so no link in it was put there by others. The directory above may be writable for a group of the
// user's (umask 002): its members can take the recordings away, but not redirect them.
int open_boxes(const char* host, Failure& failure) {
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  int made = open(directory_, kFlags);
  if (made < 0 && errno == ENOENT && make_directory(AT_FDCWD, directory_)) made = open(directory_, kFlags);
  Opened above(made);
  if (above < 0) {
    failure = {"cannot open the run directory", errno};
    return -1;
  }
  if (!crashsafe::is_ours_alone(above, false)) {
    failure = {"the run directory belongs to another user, or others may write into it", EPERM};
    return -1;
  }
  int boxes = openat(above, "boxes", kFlags | O_NOFOLLOW);
  if (boxes < 0 && errno == ENOENT && make_directory(above, "boxes")) boxes = openat(above, "boxes", kFlags | O_NOFOLLOW);
  if (boxes < 0) {
    failure = {"cannot create boxes/ in the run directory", errno};
  } else if (!crashsafe::is_ours_alone(boxes, true)) {
    failure = {"boxes/ in the run directory belongs to another user, or others may write into it", EPERM};
    close(boxes);
    boxes = -1;
  } else {
    counters_ = open_run_counters(above, host);
  }
  return boxes;
}

// The same questions by name, of a run directory that is prepared: nothing but the counters is opened. A directory that is replaced
// meanwhile is noticed before a black box is created: `boxes/` is checked again then, and must still be this one.
bool find_boxes(const char* host, struct stat& boxes) {
  struct stat above{};
  char path[sizeof directory_ + sizeof "/boxes"];
  crashsafe::BoundedText(path, sizeof path).add(directory_).add("/boxes");
  if (stat(directory_, &above) != 0 || !S_ISDIR(above.st_mode) || !crashsafe::is_ours_alone(above, false)) return false;
  if (lstat(path, &boxes) != 0 || !S_ISDIR(boxes.st_mode) || !crashsafe::is_ours_alone(boxes, true)) return false;
  counters_ = find_run_counters(directory_, host);
  return counters_ != nullptr;
}

}  // namespace

const char* run_directory() noexcept { return directory_; }
RunCounters* run_counters() noexcept { return counters_; }

// Several launchers may share a run directory, each with a helper of its own: the tasks of a Slurm step.
const char* helper_directory() noexcept {
  const char* own = getenv("PYTRACER_HELPER");
  if (own == nullptr || *own != '/' || strlen(own) >= sizeof helper_) return directory_;
  crashsafe::BoundedText(helper_, sizeof helper_).add(own);
  return helper_;
}

bool open_run_directory(const char* directory, struct stat& boxes, Failure& failure) noexcept {
  if (!note_directory(directory)) {
    directory_[0] = 0;
    failure = {"the name of the run directory is too long", ENAMETOOLONG};
    return false;
  }
  char host[crashsafe::kHostBytes];
  crashsafe::read_host_as_name(host, sizeof host);
  if (find_boxes(host, boxes)) return true;
  Opened opened(open_boxes(host, failure));
  if (opened >= 0 && fstat(opened, &boxes) == 0) return true;
  directory_[0] = 0;
  return false;
}

}  // namespace pytracer::core
