// Lists that grow and are dropped, with Boehm's collector. collected incremental|threads
#define GC_THREADS
#include <gc.h>
#include <stdio.h>
#include <string.h>

enum { kLists = 200, kLength = 2000, kThreads = 4 };
struct cell {
  struct cell* next;
  long value;
};

static long lists(void) {
  struct cell* kept[16] = {0};
  long sum = 0;
  for (int i = 0; i < kLists; i++) {
    struct cell* head = NULL;
    for (long n = 0; n < kLength; n++) {
      struct cell* cell = GC_MALLOC(sizeof *cell);
      cell->next = head;
      cell->value = n;
      head = cell;
    }
    kept[i % 16] = head;
    for (struct cell* cell = kept[(i * 7) % 16]; cell; cell = cell->next) cell->value++;  // old pages are written again
  }
  for (int i = 0; i < 16; i++)
    for (struct cell* cell = kept[i]; cell; cell = cell->next) sum += cell->value;
  return sum;
}

static void* part(void* sum) {
  *(long*)sum = lists();
  return NULL;
}

int main(int count, char** words) {
  GC_INIT();
  if (count > 1 && !strcmp(words[1], "incremental")) GC_enable_incremental();
  pthread_t thread[kThreads];
  long sums[kThreads] = {0};
  if (count > 1 && !strcmp(words[1], "threads")) {
    for (int i = 0; i < kThreads; i++) GC_pthread_create(&thread[i], NULL, part, &sums[i]);
    for (int i = 0; i < kThreads; i++) GC_pthread_join(thread[i], NULL);
  } else {
    sums[0] = lists();
  }
  printf("%ld %ld, %s\n", sums[0], sums[1], GC_get_gc_no() > 0 ? "collected" : "never collected");
  return 0;
}
