#include <stdlib.h>
#include <string.h>

typedef struct {
    int dim;
    int count;
    int capacity;
    float *vectors;
    long *ids;
} annidx;

annidx *annidx_create(int dim, int capacity)
{
    annidx *ix = malloc(sizeof(annidx));
    ix->dim = dim;
    ix->count = 0;
    ix->capacity = capacity;
    ix->vectors = malloc(sizeof(float) * (size_t)dim * capacity);
    ix->ids = malloc(sizeof(long) * capacity);
    return ix;
}

float annidx_distance(const float *a, const float *b, int dim)
{
    float s = 0.0f;
    for (int k = 0; k < dim; k++) {
        float d = a[k] - b[k];
        s += d * d;
    }
    return s;
}

int annidx_add(annidx *ix, const float *vectors, int n, const long *ids)
{
    if (ix->count + n > ix->capacity)
        return -1;
    memcpy(ix->vectors + (size_t)ix->count * ix->dim, vectors, sizeof(float) * (size_t)n * ix->dim);
    memcpy(ix->ids + ix->count, ids, sizeof(long) * n);
    ix->count += n;
    return ix->count;
}

void annidx_search(const annidx *ix, const float *query, int nq, long *out_ids, float *out_dist)
{
    for (int q = 0; q < nq; q++) {
        float best = 3.4e38f;
        long who = -1;
        for (int i = 0; i < ix->count; i++) {
            float d = annidx_distance(query + (size_t)q * ix->dim, ix->vectors + (size_t)i * ix->dim, ix->dim);
            if (d < best) {
                best = d;
                who = ix->ids[i];
            }
        }
        out_ids[q] = who;
        out_dist[q] = best;
    }
}

void annidx_free(annidx *ix)
{
    free(ix->vectors);
    free(ix->ids);
    free(ix);
}
