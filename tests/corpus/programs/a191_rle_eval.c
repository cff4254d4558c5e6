#include <stdlib.h>
#include <string.h>

typedef unsigned int uint;
typedef unsigned char byte;

int rle_to_string(const byte *mask, int h, int w, char *out)
{
    uint *runs = malloc(sizeof(uint) * ((size_t)h * w + 1));
    int m = 0, p = 0;
    uint n = 0;
    byte cur = 0;
    for (long i = 0; i < (long)h * w; i++) {
        if (mask[i] != cur) {
            runs[m++] = n;
            n = 0;
            cur = mask[i];
        }
        n++;
    }
    runs[m++] = n;
    for (int i = 0; i < m; i++) {
        long x = (long)runs[i];
        if (i > 2)
            x -= (long)runs[i - 2];
        int more = 1;
        while (more) {
            char c = x & 0x1f;
            x >>= 5;
            more = (c & 0x10) ? x != -1 : x != 0;
            if (more)
                c |= 0x20;
            out[p++] = c + 48;
        }
    }
    out[p] = 0;
    free(runs);
    return p;
}

int rle_from_string(const char *s, uint *runs)
{
    int m = 0, p = 0;
    while (s[p]) {
        long x = 0;
        int k = 0, more = 1;
        while (more) {
            char c = s[p] - 48;
            x |= (long)(c & 0x1f) << (5 * k);
            more = c & 0x20;
            p++;
            k++;
            if (!more && (c & 0x10))
                x |= -1L << (5 * k);
        }
        if (m > 2)
            x += (long)runs[m - 2];
        runs[m++] = (uint)x;
    }
    return m;
}

void rle_decode(const uint *runs, int m, byte *mask)
{
    byte v = 0;
    for (int j = 0; j < m; j++) {
        for (uint k = 0; k < runs[j]; k++)
            *mask++ = v;
        v = !v;
    }
}

void mask_decode(const char *counts, byte *mask)
{
    uint *runs = malloc(sizeof(uint) * (strlen(counts) + 1));
    int m = rle_from_string(counts, runs);
    rle_decode(runs, m, mask);
    free(runs);
}
