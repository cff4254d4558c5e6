#include <stdint.h>
#include <string.h>

static float bilinear(const float *plane, int height, int width, float y, float x)
{
    if (y < -1.0f || y > height || x < -1.0f || x > width)
        return 0.0f;
    if (y <= 0) y = 0;
    if (x <= 0) x = 0;
    int y_low = (int)y, x_low = (int)x, y_high, x_high;
    if (y_low >= height - 1) { y_high = y_low = height - 1; y = (float)y_low; }
    else y_high = y_low + 1;
    if (x_low >= width - 1) { x_high = x_low = width - 1; x = (float)x_low; }
    else x_high = x_low + 1;
    float ly = y - y_low, lx = x - x_low, hy = 1.0f - ly, hx = 1.0f - lx;
    return hy * hx * plane[y_low * width + x_low] + hy * lx * plane[y_low * width + x_high]
         + ly * hx * plane[y_high * width + x_low] + ly * lx * plane[y_high * width + x_high];
}

void roi_align_forward(const float *feat, int channels, int height, int width, const float *rois,
                       int64_t n_rois, float scale, int pooled, int sampling, float *out)
{
    for (int64_t n = 0; n < n_rois; n++) {
        const float *roi = rois + 5 * n;
        const float *img = feat + (int64_t)roi[0] * channels * height * width;
        float x0 = roi[1] * scale - 0.5f, y0 = roi[2] * scale - 0.5f;
        float bin_w = (roi[3] * scale - 0.5f - x0) / pooled, bin_h = (roi[4] * scale - 0.5f - y0) / pooled;
        for (int c = 0; c < channels; c++)
            for (int ph = 0; ph < pooled; ph++)
                for (int pw = 0; pw < pooled; pw++) {
                    float acc = 0.0f;
                    for (int iy = 0; iy < sampling; iy++)
                        for (int ix = 0; ix < sampling; ix++)
                            acc += bilinear(img + (int64_t)c * height * width, height, width,
                                            y0 + ph * bin_h + (iy + 0.5f) * bin_h / sampling,
                                            x0 + pw * bin_w + (ix + 0.5f) * bin_w / sampling);
                    *out++ = acc / (sampling * sampling);
                }
    }
}
