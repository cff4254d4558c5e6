#include <stdlib.h>
#include <string.h>

typedef struct { float x, y, w, h; } box;

typedef struct {
    box bbox;
    int classes;
    float *prob;
    float *mask;
    float objectness;
    int sort_class;
    float *uc;
} detection;

/* out: one row per cell: objectness, x, y, w, h, then one score per class */
detection *get_network_boxes(const float *out, int side, int classes, float thresh, int *num)
{
    int cells = side * side, row = 5 + classes, n = 0;
    for (int i = 0; i < cells; ++i)
        if (out[i * row] > thresh) ++n;
    detection *dets = calloc(n > 0 ? n : 1, sizeof(detection));
    n = 0;
    for (int i = 0; i < cells; ++i) {
        const float *p = out + i * row;
        if (p[0] <= thresh) continue;
        detection *d = dets + n++;
        d->bbox.x = (i % side + p[1]) / side;
        d->bbox.y = (i / side + p[2]) / side;
        d->bbox.w = p[3];
        d->bbox.h = p[4];
        d->objectness = p[0];
        d->classes = classes;
        d->prob = calloc(classes, sizeof(float));
        d->uc = calloc(4, sizeof(float));
        for (int c = 0; c < classes; ++c) d->prob[c] = p[0] * p[5 + c];
    }
    *num = n;
    return dets;
}

static float overlap(box a, box b)
{
    float l = a.x - a.w / 2 > b.x - b.w / 2 ? a.x - a.w / 2 : b.x - b.w / 2;
    float r = a.x + a.w / 2 < b.x + b.w / 2 ? a.x + a.w / 2 : b.x + b.w / 2;
    float t = a.y - a.h / 2 > b.y - b.h / 2 ? a.y - a.h / 2 : b.y - b.h / 2;
    float m = a.y + a.h / 2 < b.y + b.h / 2 ? a.y + a.h / 2 : b.y + b.h / 2;
    if (r <= l || m <= t) return 0;
    float i = (r - l) * (m - t);
    return i / (a.w * a.h + b.w * b.h - i);
}

void do_nms_obj(detection *dets, int total, int classes, float thresh)
{
    for (int i = 0; i < total; ++i)
        for (int j = 0; j < total; ++j)
            if (i != j && dets[j].objectness < dets[i].objectness && overlap(dets[i].bbox, dets[j].bbox) > thresh)
                memset(dets[j].prob, 0, classes * sizeof(float));
}

void free_detections(detection *dets, int n)
{
    for (int i = 0; i < n; ++i) { free(dets[i].prob); free(dets[i].uc); }
    free(dets);
}
