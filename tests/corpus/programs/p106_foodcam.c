#include <stdio.h>
#include <stdlib.h>

typedef struct { int w, h, c; float *data; } image;

static unsigned char *read_ppm(const char *filename, int *w, int *h)
{
    FILE *f = fopen(filename, "rb");
    int depth;
    unsigned char *pixels = NULL;
    if (!f)
        return NULL;
    if (fscanf(f, "P6 %d %d %d", w, h, &depth) == 3 && depth == 255) {
        size_t n = (size_t)*w * *h * 3;
        fgetc(f);
        pixels = malloc(n);
        if (fread(pixels, 1, n, f) != n) {
            free(pixels);
            pixels = NULL;
        }
    }
    fclose(f);
    return pixels;
}

image load_image(const char *filename)
{
    image im = {0, 0, 3, NULL};
    unsigned char *pixels = read_ppm(filename, &im.w, &im.h);
    if (!pixels) {
        fprintf(stderr, "Cannot load image \"%s\"\n", filename);
        exit(0);
    }
    im.data = malloc((size_t)im.w * im.h * 3 * sizeof(float));
    for (int k = 0; k < 3; ++k)
        for (int i = 0; i < im.w * im.h; ++i)
            im.data[k * im.w * im.h + i] = pixels[i * 3 + k] / 255.f;
    free(pixels);
    return im;
}

void free_image(image im)
{
    free(im.data);
}
