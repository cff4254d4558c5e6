/* As cublas.c. torch refuses a matrix product for which no heuristic result is found. */
#include <stddef.h>
#include <string.h>

static long handle;
enum { kVersion = 130100, kHeuristicResultBytes = 96 };

int cublasLtCreate(void** out) {
  *out = &handle;
  return 0;
}
size_t cublasLtGetVersion(void) { return kVersion; }
int cublasLtMatmulAlgoGetHeuristic(void* h, void* operation, void* a, void* b, void* c, void* d, void* preference, int wanted, void* results,
                                   int* found) {
  memset(results, 0, kHeuristicResultBytes);
  *found = 1;
  return 0;
}
