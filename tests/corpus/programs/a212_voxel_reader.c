#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int count;
    int depth, height, width;
    float *data;
} TensorList;

typedef struct {
    char root[512];
    int total, cursor, size;
} Reader;

Reader *reader_open(const char *root, int total, int size) {
    Reader *rd = calloc(1, sizeof(Reader));
    snprintf(rd->root, sizeof(rd->root), "%s", root);
    rd->total = total;
    rd->size = size;
    return rd;
}

void reader_reset(Reader *rd) { rd->cursor = 0; }

void reader_close(Reader *rd) { free(rd); }

TensorList *reader_run(Reader *rd, int batch) {
    if (rd->cursor >= rd->total) return NULL;
    if (batch > rd->total - rd->cursor) batch = rd->total - rd->cursor;
    size_t cells = (size_t)rd->size * rd->size * rd->size;
    TensorList *tl = malloc(sizeof(TensorList));
    tl->count = batch;
    tl->depth = tl->height = tl->width = rd->size;
    tl->data = malloc(cells * batch * sizeof(float));
    uint8_t *raw = malloc(cells);
    for (int i = 0; i < batch; i++) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/scan_%04d.raw", rd->root, rd->cursor++);
        FILE *f = fopen(path, "rb");
        size_t got = f ? fread(raw, 1, cells, f) : 0;
        if (f) fclose(f);
        float *dst = tl->data + (size_t)i * cells;
        for (size_t c = 0; c < cells; c++) dst[c] = c < got ? raw[c] / 255.0f - 0.5f : 0.0f;
    }
    free(raw);
    return tl;
}

int list_count(TensorList *tl) { return tl->count; }
float *list_data(TensorList *tl) { return tl->data; }

void list_free(TensorList *tl) {
    free(tl->data);
    free(tl);
}
