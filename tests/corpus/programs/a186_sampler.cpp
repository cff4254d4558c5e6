#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

struct Graph {
    int64_t n_nodes;
    const int64_t *indptr;
    const int64_t *indices;
    std::mt19937_64 rng{17};
};

static std::vector<int64_t> in_neighbours(const Graph &g, int64_t node)
{
    int64_t begin = g.indptr[node], end = g.indptr[node + 1];
    std::vector<int64_t> nbrs(end - begin);
    std::copy(g.indices + begin, g.indices + end, nbrs.begin());
    return nbrs;
}

extern "C" void *graph_open(const int64_t *csr, int64_t n_nodes)
{
    return new Graph{n_nodes, csr, csr + n_nodes + 1};
}

extern "C" int64_t sample_in_edges(void *handle, const int64_t *seeds, int64_t n_seeds, int64_t fanout, int64_t *src, int64_t *dst)
{
    Graph &g = *static_cast<Graph *>(handle);
    int64_t n = 0;
    for (int64_t i = 0; i < n_seeds; i++) {
        std::vector<int64_t> nbrs = in_neighbours(g, seeds[i]);
        int64_t take = std::min<int64_t>(fanout, nbrs.size());
        for (int64_t k = 0; k < take; k++) {
            std::swap(nbrs[k], nbrs[k + g.rng() % (nbrs.size() - k)]);
            src[n] = nbrs[k];
            dst[n++] = seeds[i];
        }
    }
    return n;
}
