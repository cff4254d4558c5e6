#include <stdint.h>

static uint64_t state = 88172645463325252ull;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* For every node: up to `k` neighbours, written as (position, neighbour). Returns the number of pairs. */
int64_t sample_adj(const int32_t *rowptr, const int32_t *col, const int64_t *idx, int64_t n, int64_t k,
                   int64_t *out_pos, int64_t *out_node)
{
    int64_t m = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t row_start = rowptr[idx[i]], row_count = rowptr[idx[i] + 1] - row_start;
        for (int64_t j = 0; j < (row_count < k ? row_count : k); j++) {
            int64_t e = row_start + (row_count <= k ? j : (int64_t)(next_random() % (uint64_t)row_count));
            out_pos[m] = i;
            out_node[m++] = col[e];
        }
    }
    return m;
}
