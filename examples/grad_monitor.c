/* A small native "gradient monitor", as teams write them: it keeps the addresses of gradient buffers and sums their
 * magnitudes without copying. It never asks whether the memory still belongs to the gradient. */
#include <math.h>
#include <stddef.h>

#define WATCH_LIMIT 256

static const float* watched[WATCH_LIMIT];
static size_t lengths[WATCH_LIMIT];
static int count;

/* Remembers one gradient buffer of `length` floats. */
void monitor_watch(const float* gradient, size_t length) {
  if (count == WATCH_LIMIT) return;
  watched[count] = gradient;
  lengths[count++] = length;
}

static double magnitude(const float* values, size_t length) {
  double sum = 0;
  for (size_t i = 0; i < length; i++) sum += fabs((double)values[i]);
  return sum;
}

/* Sum of magnitudes over everything watched. */
double monitor_total(void) {
  double total = 0;
  for (int i = 0; i < count; i++) total += magnitude(watched[i], lengths[i]);
  return total;
}
