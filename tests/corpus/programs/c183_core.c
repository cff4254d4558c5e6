#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

static void maximum_path_each(int *path, float *value, int t_y, int t_x, int stride, float max_neg_val)
{
    int x, y, index = t_x - 1;
    float v_prev, v_cur;

    for (y = 0; y < t_y; y++) {
        for (x = MAX(0, t_x + y - t_y); x < MIN(t_x, y + 1); x++) {
            if (x == y)
                v_cur = max_neg_val;
            else
                v_cur = value[(long)(y - 1) * stride + x];
            if (x == 0)
                v_prev = y == 0 ? 0.0f : max_neg_val;
            else
                v_prev = value[(long)(y - 1) * stride + x - 1];
            value[(long)y * stride + x] += MAX(v_prev, v_cur);
        }
    }

    for (y = t_y - 1; y >= 0; y--) {
        path[(long)y * stride + index] = 1;
        if (index != 0 && (index == y ||
            value[(long)(y - 1) * stride + index] < value[(long)(y - 1) * stride + index - 1]))
            index--;
    }
}

void maximum_path_c(int *paths, float *values, const int *t_ys, const int *t_xs,
                    int batch, int max_y, int max_x, float max_neg_val)
{
    long size = (long)max_y * max_x;
    for (int i = 0; i < batch; i++)
        maximum_path_each(paths + i * size, values + i * size, t_ys[i], t_xs[i], max_x, max_neg_val);
}
