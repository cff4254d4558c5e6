#include <stdlib.h>

typedef struct { float score; int class_id; int image; float x, y, w, h; } det_t;
typedef struct { int class_id; int image; float x, y, w, h; } truth_t;

static int by_score(const void *a, const void *b)
{
    float d = ((const det_t *)b)->score - ((const det_t *)a)->score;
    return d > 0 ? 1 : d < 0 ? -1 : 0;
}

static float iou(const det_t *a, const truth_t *b)
{
    float l = a->x - a->w / 2 > b->x - b->w / 2 ? a->x - a->w / 2 : b->x - b->w / 2;
    float r = a->x + a->w / 2 < b->x + b->w / 2 ? a->x + a->w / 2 : b->x + b->w / 2;
    float t = a->y - a->h / 2 > b->y - b->h / 2 ? a->y - a->h / 2 : b->y - b->h / 2;
    float m = a->y + a->h / 2 < b->y + b->h / 2 ? a->y + a->h / 2 : b->y + b->h / 2;
    if (r <= l || m <= t) return 0;
    float i = (r - l) * (m - t);
    return i / (a->w * a->h + b->w * b->h - i);
}

float mean_average_precision(det_t *dets, int n_dets, const truth_t *truth, int n_truth,
                             int classes, float iou_thresh, float *ap_out)
{
    int *used = calloc(n_truth > 0 ? n_truth : 1, sizeof(int));
    int *truth_classes_count = calloc(classes, sizeof(int));
    float *precision = calloc(n_dets > 0 ? n_dets : 1, sizeof(float));
    float sum = 0;

    for (int j = 0; j < n_truth; ++j) truth_classes_count[truth[j].class_id]++;
    qsort(dets, n_dets, sizeof(det_t), by_score);
    for (int c = 0; c < classes; ++c) {
        int tp = 0, rank = 0;
        float ap = 0;
        for (int i = 0; i < n_dets; ++i) {
            if (dets[i].class_id != c) continue;
            ++rank;
            int best = -1;
            float best_iou = iou_thresh;
            for (int j = 0; j < n_truth; ++j) {
                if (truth[j].image != dets[i].image || truth[j].class_id != c || used[j]) continue;
                float v = iou(dets + i, truth + j);
                if (v > best_iou) { best_iou = v; best = j; }
            }
            if (best >= 0) { used[best] = 1; ++tp; ap += (float)tp / rank; }
            precision[i] = (float)tp / rank;
        }
        ap_out[c] = truth_classes_count[c] ? ap / truth_classes_count[c] : 0;
        sum += ap_out[c];
    }
    free(precision);
    free(truth_classes_count);
    free(used);
    return sum / classes;
}
