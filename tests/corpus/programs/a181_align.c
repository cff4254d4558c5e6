#define MAX_NEG (-1e9f)

static void maximum_path_each(int *path, float *value, int t_y, int t_x, int stride)
{
    int index = t_x - 1;
    for (int y = 0; y < t_y; y++) {
        int first = t_x + y - t_y > 0 ? t_x + y - t_y : 0;
        int last = t_x < y + 1 ? t_x : y + 1;
        for (int x = first; x < last; x++) {
            float v_cur = x == y ? MAX_NEG : value[(y - 1) * stride + x];
            float v_prev;
            if (x == 0)
                v_prev = y == 0 ? 0.0f : MAX_NEG;
            else
                v_prev = value[(y - 1) * stride + x - 1];
            value[y * stride + x] += v_prev > v_cur ? v_prev : v_cur;
        }
    }
    for (int y = t_y - 1; y >= 0; y--) {
        path[y * stride + index] = 1;
        if (index != 0 && (index == y || value[(y - 1) * stride + index] < value[(y - 1) * stride + index - 1]))
            index--;
    }
}

void maximum_path(int *paths, float *values, int *t_ys, int *t_xs, int batch, int max_y, int max_x)
{
    for (int b = 0; b < batch; b++) {
        long start = (long)b * max_y * max_x;
        maximum_path_each(paths + start, values + start, t_ys[b], t_xs[b], max_x);
    }
}
