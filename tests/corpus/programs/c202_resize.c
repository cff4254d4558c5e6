#include <stdint.h>
#include <stdlib.h>

#define COEF_BITS 7
#define COEF_ONE (1 << COEF_BITS)
#define CHANNELS_MAX 4

typedef struct {
    int lo, hi;
    int w_lo, w_hi;
} Tap;

static Tap *make_taps(int src, int dst)
{
    Tap *taps = malloc(sizeof(Tap) * (size_t)dst);
    double scale = (double)src / dst;
    for (int i = 0; i < dst; ++i) {
        double f = (i + 0.5) * scale - 0.5;
        if (f < 0)
            f = 0;
        int lo = (int)f;
        if (lo > src - 1)
            lo = src - 1;
        taps[i].lo = lo;
        taps[i].hi = lo + 1 < src ? lo + 1 : lo;
        taps[i].w_hi = (int)((f - lo) * COEF_ONE + 0.5);
        taps[i].w_lo = COEF_ONE - taps[i].w_hi;
    }
    return taps;
}

static void hresize_row(const uint8_t *src, int16_t *row, const Tap *taps, int width, int channels)
{
    for (int x = 0; x < width; ++x) {
        const uint8_t *a = src + (size_t)taps[x].lo * channels;
        const uint8_t *b = src + (size_t)taps[x].hi * channels;
        int16_t *out = row + (size_t)x * channels;
        for (int c = 0; c < channels; ++c)
            out[c] = (int16_t)(a[c] * taps[x].w_lo + b[c] * taps[x].w_hi);
    }
}

static void vresize_row(const int16_t *top, const int16_t *bottom, uint8_t *dst, Tap tap, int count)
{
    for (int i = 0; i < count; ++i) {
        int v = top[i] * tap.w_lo + bottom[i] * tap.w_hi;
        dst[i] = (uint8_t)((v + (1 << (2 * COEF_BITS - 1))) >> (2 * COEF_BITS));
    }
}

void resize_linear_u8(const uint8_t *src, int src_h, int src_w, int channels, uint8_t *dst, int dst_h, int dst_w)
{
    Tap *tx = make_taps(src_w, dst_w);
    Tap *ty = make_taps(src_h, dst_h);
    int16_t *top = malloc(sizeof(int16_t) * (size_t)dst_w * CHANNELS_MAX);
    int16_t *bottom = malloc(sizeof(int16_t) * (size_t)dst_w * CHANNELS_MAX);
    for (int y = 0; y < dst_h; ++y) {
        hresize_row(src + (size_t)ty[y].lo * src_w * channels, top, tx, dst_w, channels);
        hresize_row(src + (size_t)ty[y].hi * src_w * channels, bottom, tx, dst_w, channels);
        vresize_row(top, bottom, dst + (size_t)y * dst_w * channels, ty[y], dst_w * channels);
    }
    free(bottom);
    free(top);
    free(ty);
    free(tx);
}
