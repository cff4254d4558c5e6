#include <stdlib.h>

/* boxes: n rows of (x1, y1, x2, y2, score), sorted by score, highest first */
void cpu_nms(int *keep_out, int *num_out, const float *boxes, int n, int dim, float thresh)
{
    char *dead = calloc(n, 1);
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (dead[i])
            continue;
        keep_out[kept++] = i;
        const float *a = boxes + (size_t)i * dim;
        float area_a = (a[2] - a[0]) * (a[3] - a[1]);
        for (int j = i + 1; j < n; j++) {
            const float *b = boxes + (size_t)j * dim;
            float xx1 = a[0] > b[0] ? a[0] : b[0], yy1 = a[1] > b[1] ? a[1] : b[1];
            float xx2 = a[2] < b[2] ? a[2] : b[2], yy2 = a[3] < b[3] ? a[3] : b[3];
            float w = xx2 > xx1 ? xx2 - xx1 : 0, h = yy2 > yy1 ? yy2 - yy1 : 0;
            float inter = w * h, area_b = (b[2] - b[0]) * (b[3] - b[1]);
            if (inter / (area_a + area_b - inter) > thresh)
                dead[j] = 1;
        }
    }
    *num_out = kept;
    free(dead);
}
