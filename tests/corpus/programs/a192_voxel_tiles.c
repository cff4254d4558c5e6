#include <stdint.h>
#include <string.h>

typedef struct cell {
    uint64_t key;
    uint32_t idx;
    uint32_t weight;
    struct cell *next;
} cell_t;

static uint32_t mix(uint64_t key, uint64_t size)
{
    key *= 0x9E3779B97F4A7C15ull;
    return (uint32_t)((key >> 20) % size);
}

int64_t grid_subsample(const float *xyz, int64_t n, double grid,
                       cell_t **table, cell_t *cells, int64_t size, int64_t *out)
{
    int64_t count = 0;
    const double inv = 1.0 / grid;
    uint32_t rng = 2463534242u;
    memset(table, 0, sizeof(cell_t *) * (size_t)size);
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = (uint64_t)(int64_t)(xyz[i * 3 + 0] * inv + 1e6);
        uint64_t y = (uint64_t)(int64_t)(xyz[i * 3 + 1] * inv + 1e6);
        uint64_t z = (uint64_t)(int64_t)(xyz[i * 3 + 2] * inv + 1e6);
        uint64_t key = (x << 42) ^ (y << 21) ^ z;
        cell_t **slot = &table[mix(key, (uint64_t)size)];
        rng ^= rng << 13;
        rng ^= rng >> 17;
        rng ^= rng << 5;
        while (*slot && (*slot)->key != key)
            slot = &(*slot)->next;
        if (*slot == 0) {
            cell_t *c = cells + count++;
            c->key = key;
            c->idx = (uint32_t)i;
            c->weight = rng;
            c->next = 0;
            *slot = c;
        } else if (rng > (*slot)->weight) {
            (*slot)->weight = rng;
            (*slot)->idx = (uint32_t)i;
        }
    }
    for (int64_t i = 0; i < count; i++)
        out[i] = cells[i].idx;
    return count;
}
