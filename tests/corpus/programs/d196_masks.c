#include <stdlib.h>
#include <string.h>

typedef unsigned char byte;
typedef unsigned int uint;

typedef struct { unsigned long h, w, m; uint *cnts; } RLE;

static void rleInit(RLE *R, unsigned long h, unsigned long w, unsigned long m) {
    R->h = h; R->w = w; R->m = m;
    R->cnts = m == 0 ? 0 : malloc(sizeof(uint) * m);
}

static void rleFree(RLE *R) { free(R->cnts); R->cnts = 0; }

static void rleEncode(RLE *R, const byte *M, unsigned long h, unsigned long w) {
    unsigned long j, k = 0, a = w * h; uint c = 0; byte p = 0;
    uint *cnts = malloc(sizeof(uint) * (a + 1));
    for (j = 0; j < a; j++) {
        if (M[j] != p) { cnts[k++] = c; c = 0; p = M[j]; }
        c++;
    }
    cnts[k++] = c;
    rleInit(R, h, w, k);
    memcpy(R->cnts, cnts, sizeof(uint) * k);
    free(cnts);
}

static void rleDecode(const RLE *R, byte *M) {
    byte v = 0;
    for (unsigned long j = 0; j < R->m; j++) {
        for (uint k = 0; k < R->cnts[j]; k++) *(M++) = v;
        v = !v;
    }
}

static void rleToString(const RLE *R, char *s) {
    unsigned long p = 0; long x; int more;
    for (unsigned long i = 0; i < R->m; i++) {
        x = (long) R->cnts[i];
        if (i > 2) x -= (long) R->cnts[i - 2];
        more = 1;
        while (more) {
            char c = x & 0x1f; x >>= 5;
            more = (c & 0x10) ? x != -1 : x != 0;
            if (more) c |= 0x20;
            c += 48;
            s[p++] = c;
        }
    }
    s[p] = 0;
}

static void rleFrString(RLE *R, const char *s, unsigned long h, unsigned long w) {
    unsigned long m = 0, p = 0, k; long x; int more; uint *cnts;
    while (s[m]) m++;
    cnts = malloc(sizeof(uint) * m); m = 0;
    while (s[p]) {
        x = 0; k = 0; more = 1;
        while (more) {
            char c = s[p] - 48;
            x |= (long) (c & 0x1f) << 5 * k;
            more = c & 0x20; p++; k++;
            if (!more && (c & 0x10)) x |= (long) -1 << 5 * k;
        }
        if (m > 2) x += (long) cnts[m - 2];
        cnts[m++] = (uint) x;
    }
    rleInit(R, h, w, m);
    memcpy(R->cnts, cnts, sizeof(uint) * m);
    free(cnts);
}

void mask_encode(const byte *mask, unsigned long h, unsigned long w, char *out) {
    RLE R; rleEncode(&R, mask, h, w); rleToString(&R, out); rleFree(&R);
}

void mask_decode(const char *counts, unsigned long h, unsigned long w, byte *mask) {
    RLE R; rleFrString(&R, counts, h, w); rleDecode(&R, mask); rleFree(&R);
}
