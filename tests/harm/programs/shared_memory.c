// /dev/shm is full, as when a DataLoader's workers hand over more than a container's 64 MiB.
// shared_memory write|store: write() fails; a store into the mapping dies of SIGBUS.
#include <errno.h>

#include "common.h"

int main(int count, char** words) {
  must(count == 2, "words");
  static char block[64 << 10];
  char name[64];
  snprintf(name, sizeof name, "/pytracer-test.%d", getpid());
  int file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
  must(file >= 0, "shm_open");
  shm_unlink(name);
  if (is(words[1], "write")) {
    int written = 0;
    while (write(file, block, sizeof block) == sizeof block) written++;
    say("%d blocks, %s\n", written, strerror(errno));
    return 0;
  }
  const size_t nbytes = 64 << 20;
  must(ftruncate(file, (off_t)nbytes) == 0, "ftruncate");
  char* mapped = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  say("mapped\n");
  for (size_t at = 0; at < nbytes; at += PAGE_NBYTES) mapped[at] = 1;
  return 0;
}
