#include <algorithm>
#include <cmath>
#include <vector>

struct Point {
  double x, y;
};
typedef std::vector<Point> Polygon;

struct Box {
  double x, z, w, l, yaw;
};

static double signed_area(const Polygon &p) {
  double total = 0;
  for (size_t i = 0, n = p.size(); i < n; ++i) {
    const Point &a = p[i], &b = p[(i + 1) % n];
    total += a.x * b.y - b.x * a.y;
  }
  return total / 2;
}

static Polygon to_polygon(const Box &b) {
  const double sx[4] = {-0.5, 0.5, 0.5, -0.5}, sy[4] = {-0.5, -0.5, 0.5, 0.5};
  const double c = std::cos(b.yaw), s = std::sin(b.yaw);
  Polygon out;
  for (int i = 0; i < 4; ++i) {
    double px = sx[i] * b.l, py = sy[i] * b.w;
    out.push_back({b.x + c * px - s * py, b.z + s * px + c * py});
  }
  return out;
}

static bool valid_ring(const Polygon &p) { return p.size() >= 3 && signed_area(p) > 0; }

static Polygon clip(const Polygon &subject, const Polygon &window) {
  Polygon out = subject;
  for (size_t e = 0; e < window.size() && !out.empty(); ++e) {
    const Point &a = window[e], &b = window[(e + 1) % window.size()];
    auto side = [&](const Point &p) { return (b.x - a.x) * (p.y - a.y) - (b.y - a.y) * (p.x - a.x); };
    Polygon in;
    in.swap(out);
    for (size_t i = 0; i < in.size(); ++i) {
      const Point &p = in[i], &q = in[(i + 1) % in.size()];
      double sp = side(p), sq = side(q);
      if (sp >= 0)
        out.push_back(p);
      if ((sp >= 0) != (sq >= 0)) {
        double t = sp / (sp - sq);
        out.push_back({p.x + t * (q.x - p.x), p.y + t * (q.y - p.y)});
      }
    }
  }
  return out;
}

static Polygon outline(Polygon pts) {
  std::sort(pts.begin(), pts.end(), [](const Point &a, const Point &b) { return a.x < b.x || (a.x == b.x && a.y < b.y); });
  auto cross = [](const Point &o, const Point &a, const Point &b) {
    return (a.x - o.x) * (b.y - o.y) - (a.y - o.y) * (b.x - o.x);
  };
  Polygon hull(2 * pts.size());
  size_t k = 0;
  for (size_t i = 0; i < pts.size(); hull[k++] = pts[i++])
    while (k >= 2 && cross(hull[k - 2], hull[k - 1], pts[i]) <= 0)
      --k;
  for (size_t i = pts.size() - 1, t = k + 1; i-- > 0; hull[k++] = pts[i])
    while (k >= t && cross(hull[k - 2], hull[k - 1], pts[i]) <= 0)
      --k;
  hull.resize(k - 1);
  return hull;
}

static void intersection_(const Polygon &a, const Polygon &b, std::vector<Polygon> &out) {
  Polygon common = clip(a, b);
  if (valid_ring(common))
    out.push_back(common);
}

static void union_(const Polygon &a, const Polygon &b, std::vector<Polygon> &out) {
  if (!valid_ring(a) || !valid_ring(b))
    return;
  if (valid_ring(clip(a, b))) {
    Polygon all(a);
    all.insert(all.end(), b.begin(), b.end());
    out.push_back(outline(all));
  } else {
    out.push_back(a);
    out.push_back(b);
  }
}

static double ground_box_overlap(const Box &d, const Box &g) {
  Polygon dp = to_polygon(d), gp = to_polygon(g);
  std::vector<Polygon> in, un;
  intersection_(gp, dp, in);
  union_(gp, dp, un);
  double inter_area = in.empty() ? 0 : signed_area(in.front());
  double union_area = signed_area(un.front());
  return inter_area / union_area;
}

extern "C" double eval_bev(const double *dets, const double *gts, int n, double min_overlap) {
  int hits = 0;
  for (int i = 0; i < n; ++i) {
    const double *d = dets + 5 * i, *g = gts + 5 * i;
    Box det{d[0], d[1], d[2], d[3], d[4]}, gt{g[0], g[1], g[2], g[3], g[4]};
    if (ground_box_overlap(det, gt) >= min_overlap)
      ++hits;
  }
  return n ? static_cast<double>(hits) / n : 0.0;
}
