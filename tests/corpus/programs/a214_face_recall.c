#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int n, dim, k; const float *data; int *nbr; } Graph;

static unsigned long long state = 88172645463325252ULL;
static unsigned rng(void) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return (unsigned)(state >> 11);
}

static int cmp_int(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void gen_random(int *addr, int size, int n) {
    for (int i = 0; i < size; i++) addr[i] = rng() % (n - size);
    qsort(addr, size, sizeof(int), cmp_int);
    for (int i = 1; i < size; i++)
        if (addr[i] <= addr[i - 1]) addr[i] = addr[i - 1] + 1;
    int off = rng() % n;
    for (int i = 0; i < size; i++) addr[i] = (addr[i] + off) % n;
}

static float dist(const float *a, const float *b, int dim) {
    float s = 0;
    for (int i = 0; i < dim; i++) s += (a[i] - b[i]) * (a[i] - b[i]);
    return s;
}

static void offer(int *ids, float *ds, int k, int id, float d) {
    if (d >= ds[k - 1]) return;
    for (int i = 0; i < k; i++) if (ids[i] == id) return;
    int i = k - 1;
    while (i > 0 && ds[i - 1] > d) { ids[i] = ids[i - 1]; ds[i] = ds[i - 1]; i--; }
    ids[i] = id; ds[i] = d;
}

Graph *graph_build(const float *data, int n, int dim, int k) {
    Graph *g = malloc(sizeof(Graph));
    g->n = n; g->dim = dim; g->k = k; g->data = data;
    g->nbr = malloc(sizeof(int) * (size_t)n * k);
    float *ds = malloc(sizeof(float) * k);
    for (int i = 0; i < n; i++) {
        int *ids = g->nbr + (size_t)i * k;
        for (int j = 0; j < k; j++) { ids[j] = -1; ds[j] = INFINITY; }
        for (int j = 0; j < n; j++)
            if (j != i) offer(ids, ds, k, j, dist(data + (size_t)i * dim, data + (size_t)j * dim, dim));
    }
    free(ds);
    return g;
}

void graph_search(Graph *g, const float *queries, int nq, int k, int p, int *result) {
    int *seeds = malloc(sizeof(int) * p);
    float *ds = malloc(sizeof(float) * k);
    for (int q = 0; q < nq; q++) {
        const float *x = queries + (size_t)q * g->dim;
        int *ids = result + (size_t)q * k;
        for (int j = 0; j < k; j++) { ids[j] = -1; ds[j] = INFINITY; }
        gen_random(seeds, p, g->n);
        for (int i = 0; i < p; i++)
            offer(ids, ds, k, seeds[i], dist(x, g->data + (size_t)seeds[i] * g->dim, g->dim));
        for (int round = 0; round < 8; round++) {
            int best = ids[round % k];
            for (int j = 0; best >= 0 && j < g->k; j++) {
                int c = g->nbr[(size_t)best * g->k + j];
                if (c >= 0) offer(ids, ds, k, c, dist(x, g->data + (size_t)c * g->dim, g->dim));
            }
        }
    }
    free(seeds); free(ds);
}

void graph_free(Graph *g) { free(g->nbr); free(g); }
