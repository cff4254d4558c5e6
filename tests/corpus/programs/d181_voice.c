#include <stdint.h>
#include <stddef.h>

#define NEG (-1e9f)

static void align_one(int32_t *path, float *value, uint32_t t_y, uint32_t t_x)
{
    uint32_t index = t_x - 1;

    for (uint32_t y = 0; y < t_y; y++) {
        int64_t lo = (int64_t)t_x + y - t_y;
        uint32_t x0 = lo > 0 ? (uint32_t)lo : 0;
        uint32_t x1 = t_x < y + 1 ? t_x : y + 1;
        for (uint32_t x = x0; x < x1; x++) {
            float v_cur = x == y ? NEG : value[(size_t)(y - 1) * t_x + x];
            float v_prev;
            if (x == 0)
                v_prev = y == 0 ? 0.0f : NEG;
            else
                v_prev = value[(size_t)(y - 1) * t_x + x - 1];
            value[(size_t)y * t_x + x] += v_cur > v_prev ? v_cur : v_prev;
        }
    }

    for (uint32_t y = t_y; y-- > 0;) {
        path[(size_t)y * t_x + index] = 1;
        if (index != 0 &&
            (index == y || value[(size_t)(y - 1) * t_x + index] < value[(size_t)(y - 1) * t_x + index - 1]))
            index--;
    }
}

void maximum_path(int32_t *paths, float *values, const int64_t *offsets,
                  const int32_t *t_ys, const int32_t *t_xs, int32_t batch)
{
    for (int32_t b = 0; b < batch; b++)
        align_one(paths + offsets[b], values + offsets[b], (uint32_t)t_ys[b], (uint32_t)t_xs[b]);
}
