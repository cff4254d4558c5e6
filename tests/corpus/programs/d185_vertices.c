#include <stdint.h>
#include <stdlib.h>

typedef struct node {
    int64_t point;
    int axis;
    struct node *left, *right;
} node;

typedef struct {
    const float *x;
    int dim;
    int k;
    int found;
    int64_t *ids;
    float *dist;
} search;

static const float *sort_x;
static int sort_dim, sort_axis;

static int by_axis(const void *a, const void *b)
{
    float u = sort_x[*(const int64_t *)a * sort_dim + sort_axis];
    float v = sort_x[*(const int64_t *)b * sort_dim + sort_axis];
    return (u > v) - (u < v);
}

static node *build(const float *x, int dim, int64_t *ids, int64_t n, int depth)
{
    if (n == 0)
        return NULL;
    node *t = malloc(sizeof *t);
    sort_x = x;
    sort_dim = dim;
    sort_axis = depth % dim;
    qsort(ids, (size_t)n, sizeof *ids, by_axis);
    t->axis = depth % dim;
    t->point = ids[n / 2];
    t->left = build(x, dim, ids, n / 2, depth + 1);
    t->right = build(x, dim, ids + n / 2 + 1, n - n / 2 - 1, depth + 1);
    return t;
}

static void release(node *t)
{
    if (t->left)
        release(t->left);
    if (t->right)
        release(t->right);
    free(t);
}

static void insert(search *s, int64_t id, float d)
{
    int i = s->found < s->k ? s->found++ : s->k - 1;
    if (s->found == s->k && i == s->k - 1 && s->ids[i] >= 0 && s->dist[i] <= d)
        return;
    while (i > 0 && s->dist[i - 1] > d) {
        s->dist[i] = s->dist[i - 1];
        s->ids[i] = s->ids[i - 1];
        i--;
    }
    s->dist[i] = d;
    s->ids[i] = id;
}

static void query(search *s, const node *t, const float *q)
{
    const float *p = s->x + t->point * s->dim;
    float d = 0, gap;
    for (int c = 0; c < s->dim; c++)
        d += (p[c] - q[c]) * (p[c] - q[c]);
    insert(s, t->point, d);
    gap = q[t->axis] - p[t->axis];
    const node *near = gap < 0 ? t->left : t->right;
    const node *far = gap < 0 ? t->right : t->left;
    if (near)
        query(s, near, q);
    if (far && (s->found < s->k || gap * gap < s->dist[s->k - 1]))
        query(s, far, q);
}

int64_t knn(const float *x, const float *y, const int64_t *ptr_x, const int64_t *ptr_y,
            int64_t batches, int dim, int k, int64_t *rows, int64_t *cols)
{
    int64_t edges = 0;
    int64_t *ids = malloc((size_t)(ptr_x[batches] + 1) * sizeof *ids);
    int64_t *best = malloc((size_t)k * sizeof *best);
    float *dist = malloc((size_t)k * sizeof *dist);

    for (int64_t b = 0; b < batches; b++) {
        int64_t n = ptr_x[b + 1] - ptr_x[b];
        for (int64_t i = 0; i < n; i++)
            ids[i] = ptr_x[b] + i;
        node *tree = build(x, dim, ids, n, 0);
        for (int64_t j = ptr_y[b]; j < ptr_y[b + 1]; j++) {
            search s = {x, dim, k, 0, best, dist};
            for (int c = 0; c < k; c++)
                best[c] = -1;
            query(&s, tree, y + j * dim);
            for (int c = 0; c < s.found; c++) {
                rows[edges] = j;
                cols[edges++] = best[c];
            }
        }
        release(tree);
    }
    free(ids);
    free(best);
    free(dist);
    return edges;
}
