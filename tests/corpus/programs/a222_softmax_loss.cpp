#include <cmath>
#include <cstdlib>

namespace {

void softmax_row(const float *in, float *out, int classes)
{
    float top = in[0];
    for (int c = 1; c < classes; ++c)
        top = in[c] > top ? in[c] : top;
    float total = 0.f;
    for (int c = 0; c < classes; ++c) {
        out[c] = std::exp(in[c] - top);
        total += out[c];
    }
    for (int c = 0; c < classes; ++c)
        out[c] /= total;
}

}  // namespace

extern "C" float softmax_loss(const float *scores, const long *labels, const float *weights, int batch, int classes, float *grad)
{
    float *diff = static_cast<float *>(std::malloc(sizeof(float) * batch * classes));
    float loss = 0.f;
    float norm = 0.f;
    for (int i = 0; i < batch; ++i) {
        float *row = diff + i * classes;
        softmax_row(scores + i * classes, row, classes);
    }
    for (int i = 0; i < batch; ++i) {
        const int label = static_cast<int>(labels[i]);
        const float prob = diff[i * classes + label];
        loss -= std::log(prob > 1e-12f ? prob : 1e-12f);
        diff[i * classes + label] -= 1.f;
        norm += 1.f;
    }
    for (int i = 0; i < batch; ++i)
        for (int c = 0; c < classes; ++c)
            grad[i * classes + c] = diff[i * classes + c] * weights[c] / norm;
    std::free(diff);
    return loss / norm;
}
