#include <math.h>

static float sample(const float *plane, int w, int h, float x, float y)
{
    int x0 = (int)floorf(x), y0 = (int)floorf(y);
    int x1 = x0 + 1 < w ? x0 + 1 : w - 1;
    int y1 = y0 + 1 < h ? y0 + 1 : h - 1;
    float dx = x - x0, dy = y - y0;
    return (1 - dy) * ((1 - dx) * plane[y0 * w + x0] + dx * plane[y0 * w + x1])
         + dy * ((1 - dx) * plane[y1 * w + x0] + dx * plane[y1 * w + x1]);
}

/* interleaved 8-bit w*h*c image -> planar float c*side*side, aspect ratio kept, grey borders */
float letterbox(const unsigned char *image, int w, int h, int c, float *out, int side)
{
    float data[w * h * c];
    int k, x, y;

    for (k = 0; k < c; ++k)
        for (y = 0; y < h; ++y)
            for (x = 0; x < w; ++x)
                data[(k * h + y) * w + x] = image[(y * w + x) * c + k] / 255.f;

    float scale = fminf((float)side / w, (float)side / h);
    int nw = (int)(w * scale), nh = (int)(h * scale);
    int left = (side - nw) / 2, top = (side - nh) / 2;

    for (k = 0; k < c; ++k)
        for (y = 0; y < side; ++y)
            for (x = 0; x < side; ++x) {
                float *dst = out + (k * side + y) * side + x;
                int ix = x - left, iy = y - top;
                if (ix < 0 || iy < 0 || ix >= nw || iy >= nh)
                    *dst = 0.5f;
                else
                    *dst = sample(data + k * h * w, w, h, fminf(ix / scale, w - 1), fminf(iy / scale, h - 1));
            }
    return scale;
}
