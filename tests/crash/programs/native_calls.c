/* What native_calls.py calls: a C library that trusts its arguments, or what is in its data. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* They read, because a write would destroy what the report needs, such as the names of libraries. */
static volatile float last;

void enlarge(const float *row, int columns, int times) {
  for (long i = 0; i < (long)columns * times; i++) last = row[i];
}

void decode(const char *file, const float *pixels) {
  int count;
  memcpy(&count, file, sizeof count);
  for (long i = 0; i < count; i++) last = pixels[i];
}

void score(const float *scores, int row, int columns) {
  for (int column = 0; column < columns; column++) last = scores[(long)row * columns + column];
}

/* A constant of the library, which no count leads to. */
static const char title[] = "row";
void label(const float *row, int columns, int times) {
  last = row[columns % times];
  *(volatile char *)title = 'c';
}

/* A state of the whole library: the call that waits in it keeps it, the other one finds it gone. */
static volatile int *state;
void with_state(int waits) {
  if (waits)
    for (;;) usleep(10000);
  *(volatile int *)((char *)state + 0x5000000000000000) = 1;
}

typedef struct { int32_t type, id; } Device;
typedef struct { uint8_t code, bits; uint16_t lanes; } Type;
typedef struct {
  void *data; Device device; int32_t ndim; Type dtype; int64_t *shape, *strides; uint64_t offset;
} Tensor;
typedef struct Managed { Tensor tensor; void *context; void (*deleter)(struct Managed *); } Managed;

void samples_free(Managed *m) {
  free(m->tensor.data);
  free(m->tensor.shape);
  free(m);
}

Managed *samples_new(int64_t count) {
  Managed *m = calloc(1, sizeof *m);
  m->tensor.data = calloc(count, sizeof(float));
  m->tensor.device = (Device){1, 0};
  m->tensor.ndim = 1;
  m->tensor.dtype = (Type){2, 32, 1};
  m->tensor.shape = malloc(sizeof(int64_t));
  m->tensor.shape[0] = count;
  m->deleter = samples_free;
  return m;
}
