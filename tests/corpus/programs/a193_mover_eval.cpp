#include <vector>

typedef std::vector<double> row_t;

static double one_side(const row_t &p, const row_t &q, const std::vector<row_t> &cost)
{
    double total = 0;
    const int n = (int)p.size();
    for (int i = 0; i < n; i++) {
        if (p[i] <= 0)
            continue;
        const row_t &row = cost[i];
        double best = 1e30;
        for (int j = 0; j < n; j++)
            if (q[j] > 0 && row[j] < best)
                best = row[j];
        total += p[i] * best;
    }
    return total;
}

extern "C" double mover_distance(const double *first, const double *second, int n,
                                 const double *dist, int rows, int cols)
{
    row_t p(first, first + n), q(second, second + n);
    std::vector<row_t> cost;
    cost.reserve(rows);
    for (int r = 0; r < rows; r++)
        cost.emplace_back(dist + (long)r * cols, dist + (long)(r + 1) * cols);
    double a = one_side(p, q, cost);
    double b = one_side(q, p, cost);
    return a > b ? a : b;
}
