#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

struct FlatIndex {
    int dim;
    std::vector<float> xb;
    std::vector<int64_t> id_map;

    explicit FlatIndex(int d) : dim(d) {}

    void add_with_ids(const float *x, const int64_t *ids, int n) {
        xb.insert(xb.end(), x, x + (size_t)n * dim);
        id_map.insert(id_map.end(), ids, ids + n);
    }

    float score(const float *q, size_t row) const {
        const float *p = xb.data() + row * dim;
        return std::inner_product(q, q + dim, p, 0.0f);
    }

    void search(const float *q, int nq, int k, int64_t *ids, float *scores) const {
        std::vector<size_t> order(id_map.size());
        std::vector<float> s(id_map.size());
        for (int i = 0; i < nq; i++) {
            std::iota(order.begin(), order.end(), 0);
            for (size_t r = 0; r < s.size(); r++) s[r] = score(q + (size_t)i * dim, r);
            int top = std::min<int>(k, order.size());
            std::partial_sort(order.begin(), order.begin() + top, order.end(),
                              [&](size_t a, size_t b) { return s[a] > s[b]; });
            for (int j = 0; j < top; j++) {
                ids[(size_t)i * k + j] = id_map[order[j]];
                scores[(size_t)i * k + j] = s[order[j]];
            }
        }
    }

    int64_t id_at(size_t row) const { return id_map.at(row); }
};

extern "C" {
void *index_new(int dim) { return new FlatIndex(dim); }
void index_add(void *ix, const float *x, const int64_t *ids, int n) {
    static_cast<FlatIndex *>(ix)->add_with_ids(x, ids, n);
}
void index_search(void *ix, const float *q, int nq, int k, int64_t *ids, float *scores) {
    static_cast<FlatIndex *>(ix)->search(q, nq, k, ids, scores);
}
int64_t index_id_at(void *ix, int64_t row) { return static_cast<FlatIndex *>(ix)->id_at(row); }
void index_delete(void *ix) { delete static_cast<FlatIndex *>(ix); }
}
