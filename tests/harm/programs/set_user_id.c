// The file is root's and set-user-id, and another user starts it: the loader drops LD_PRELOAD, and the process is not recorded.
// set_user_id DEATH|exit
#include <sys/auxv.h>

#include "common.h"

int main(int count, char** words) {
  must(count == 2, "words");
  say("secure %lu, other user %d\n", getauxval(AT_SECURE), getuid() != geteuid());
  die(words[1]);
  return 3;
}
