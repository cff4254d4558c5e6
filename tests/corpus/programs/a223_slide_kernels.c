#include <immintrin.h>
#include <stdint.h>

static float dot(const float *a, const float *b, int n)
{
    float total = 0.f;
    int i = 0;
#if defined(__AVX512F__)
    __m512 acc = _mm512_setzero_ps();
    for (; i + 16 <= n; i += 16)
        acc = _mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i), acc);
    total = _mm512_reduce_add_ps(acc);
#endif
    for (; i < n; i++)
        total += a[i] * b[i];
    return total;
}

void simhash_codes(const float *rows, const float *planes, int n_rows, int dim, int bits, int64_t *codes)
{
    for (int r = 0; r < n_rows; r++) {
        int64_t code = 0;
        for (int b = 0; b < bits; b++)
            code = (code << 1) | (dot(rows + (long)r * dim, planes + (long)b * dim, dim) > 0.f);
        codes[r] = code;
    }
}
