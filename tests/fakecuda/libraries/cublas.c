/* Handles exist, every algorithm is found; nothing is computed. */
static long handle;
enum { kVersion = 130100 };

int cublasCreate_v2(void** out) {
  *out = &handle;
  return 0;
}
int cublasGetMathMode(void* h, int* mode) {
  *mode = 0;
  return 0;
}
int cublasGetPointerMode_v2(void* h, int* mode) {
  *mode = 0;
  return 0;
}
int cublasGetVersion_v2(void* h, int* version) {
  *version = kVersion;
  return 0;
}
