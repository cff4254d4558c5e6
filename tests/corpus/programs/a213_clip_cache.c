#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct Entry {
    uint64_t key;
    size_t bytes;
    char *data;
    struct Entry *next;
} Entry;

#define SLOTS 256
typedef struct { Entry *slot[SLOTS]; size_t entries, used; } Store;

Store *store_open(void) { return calloc(1, sizeof(Store)); }

void store_put(Store *st, uint64_t key, const char *data, size_t bytes) {
    Entry *e = malloc(sizeof(Entry));
    e->key = key;
    e->bytes = bytes;
    e->data = malloc(bytes);
    memcpy(e->data, data, bytes);
    e->next = st->slot[key % SLOTS];
    st->slot[key % SLOTS] = e;
    st->entries++;
    st->used += bytes;
}

char *store_export(Store *st, uint64_t key, size_t *bytes) {
    for (Entry *e = st->slot[key % SLOTS]; e; e = e->next)
        if (e->key == key) {
            char *exported = malloc(e->bytes);
            memcpy(exported, e->data, e->bytes);
            *bytes = e->bytes;
            return exported;
        }
    *bytes = 0;
    return NULL;
}

void buffer_free(char *exported) { free(exported); }

void store_close(Store *st) {
    for (int i = 0; i < SLOTS; i++)
        for (Entry *e = st->slot[i], *n; e; e = n) {
            n = e->next;
            free(e->data);
            free(e);
        }
    free(st);
}
