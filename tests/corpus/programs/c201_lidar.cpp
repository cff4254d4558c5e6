#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

typedef std::vector<std::vector<float>> vec_t;

struct Node {
  size_t begin, end;
  int axis;
  float split;
  std::unique_ptr<Node> left, right;
};

class PointTree {
public:
  PointTree(const vec_t &points, size_t leaf_size)
      : points_(points), dims_(points[0].size()), leaf_(leaf_size), index_(points.size()) {
    std::iota(index_.begin(), index_.end(), size_t(0));
    root_ = build(0, index_.size());
  }

  size_t radius_search(const float *query, float radius, std::vector<size_t> &found) const {
    search(*root_, query, radius * radius, radius, found);
    return found.size();
  }

private:
  std::unique_ptr<Node> build(size_t begin, size_t end) {
    auto node = std::make_unique<Node>();
    node->begin = begin;
    node->end = end;
    node->axis = -1;
    if (end - begin <= leaf_)
      return node;
    int best = 0;
    float spread = -1.f;
    for (size_t d = 0; d < dims_; ++d) {
      float lo = points_[index_[begin]][d], hi = lo;
      for (size_t i = begin; i < end; ++i) {
        lo = std::min(lo, points_[index_[i]][d]);
        hi = std::max(hi, points_[index_[i]][d]);
      }
      if (hi - lo > spread) {
        spread = hi - lo;
        best = static_cast<int>(d);
      }
    }
    size_t mid = (begin + end) / 2;
    std::nth_element(index_.begin() + begin, index_.begin() + mid, index_.begin() + end,
                     [&](size_t a, size_t b) { return points_[a][best] < points_[b][best]; });
    node->axis = best;
    node->split = points_[index_[mid]][best];
    node->left = build(begin, mid);
    node->right = build(mid, end);
    return node;
  }

  void search(const Node &node, const float *query, float r2, float r, std::vector<size_t> &found) const {
    if (node.axis < 0) {
      for (size_t i = node.begin; i < node.end; ++i) {
        float dist = 0.f;
        for (size_t d = 0; d < dims_; ++d) {
          float diff = points_[index_[i]][d] - query[d];
          dist += diff * diff;
        }
        if (dist <= r2)
          found.push_back(index_[i]);
      }
      return;
    }
    if (query[node.axis] - r <= node.split)
      search(*node.left, query, r2, r, found);
    if (query[node.axis] + r >= node.split)
      search(*node.right, query, r2, r, found);
  }

  const vec_t &points_;
  size_t dims_;
  size_t leaf_;
  std::vector<size_t> index_;
  std::unique_ptr<Node> root_;
};

extern "C" int64_t radius_graph(const float *pos, int64_t n, int64_t dim, float r, int64_t max_neighbors,
                                int64_t *row, int64_t *col) {
  vec_t points(n);
  for (int64_t i = 0; i < n; ++i)
    points[i].assign(pos + i * dim, pos + (i + 1) * dim);

  PointTree tree(points, 10);
  int64_t edges = 0;
  for (int64_t i = 0; i < n; ++i) {
    std::vector<size_t> found;
    tree.radius_search(pos + i * dim, r, found);
    int64_t count = 0;
    for (size_t j : found) {
      if (static_cast<int64_t>(j) == i || count >= max_neighbors)
        continue;
      row[edges] = static_cast<int64_t>(j);
      col[edges] = i;
      ++edges;
      ++count;
    }
  }
  return edges;
}
