#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DUMP_FILE "/home/lipu/projects/robifocus/vision3d/debug/subsample_cells.txt"

typedef struct {
    int64_t key;
    int32_t index;
} Entry;

static int by_key(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int32_t subsample_one(const float *points, int32_t count, float voxel, float *out)
{
    float lo[3] = {points[0], points[1], points[2]};
    float hi[3] = {points[0], points[1], points[2]};
    for (int32_t i = 1; i < count; ++i)
        for (int d = 0; d < 3; ++d) {
            float v = points[3 * i + d];
            if (v < lo[d])
                lo[d] = v;
            if (v > hi[d])
                hi[d] = v;
        }
    int64_t nx = (int64_t)floorf((hi[0] - lo[0]) / voxel) + 1;
    int64_t ny = (int64_t)floorf((hi[1] - lo[1]) / voxel) + 1;
    Entry *entries = malloc(sizeof(Entry) * (size_t)count);
    for (int32_t i = 0; i < count; ++i) {
        int64_t ix = (int64_t)floorf((points[3 * i] - lo[0]) / voxel);
        int64_t iy = (int64_t)floorf((points[3 * i + 1] - lo[1]) / voxel);
        int64_t iz = (int64_t)floorf((points[3 * i + 2] - lo[2]) / voxel);
        entries[i].key = ix + nx * (iy + ny * iz);
        entries[i].index = i;
    }
    qsort(entries, (size_t)count, sizeof(Entry), by_key);

    FILE *dump = fopen(DUMP_FILE, "a");
    int32_t cells = 0;
    for (int32_t i = 0; i < count;) {
        int32_t j = i;
        float sum[3] = {0, 0, 0};
        while (j < count && entries[j].key == entries[i].key) {
            for (int d = 0; d < 3; ++d)
                sum[d] += points[3 * entries[j].index + d];
            ++j;
        }
        for (int d = 0; d < 3; ++d)
            out[3 * cells + d] = sum[d] / (float)(j - i);
        fprintf(dump, "%lld %d\n", (long long)entries[i].key, j - i);
        ++cells;
        i = j;
    }
    fclose(dump);
    free(entries);
    return cells;
}

int32_t subsample_batch(const float *points, const int32_t *lengths, int32_t batch, float voxel, float *out,
                        int32_t *out_lengths)
{
    int32_t total = 0;
    for (int32_t b = 0; b < batch; ++b) {
        out_lengths[b] = subsample_one(points, lengths[b], voxel, out + 3 * (size_t)total);
        total += out_lengths[b];
        points += 3 * (size_t)lengths[b];
    }
    return total;
}
