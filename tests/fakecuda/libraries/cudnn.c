/* A handle and a version. Convolutions find no engine: programs set torch.backends.cudnn.enabled = False. */
#include <stddef.h>

static long handle;

int cudnnCreate(void** out) {
  *out = &handle;
  return 0;
}
size_t cudnnGetVersion(void) { return 92400; }
size_t cudnnGetCudartVersion(void) { return 13000; }
