#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int w, h, c;
} image_size;

static void record_unreadable(const char *filename, const char *list, int readable)
{
    char buff[128];
    sprintf(buff, "%s %s\n", filename, readable ? "size" : "missing");
    FILE *fp = fopen(list, "a");
    if (fp) {
        fputs(buff, fp);
        fclose(fp);
    }
}

int load_image(const char *filename, const char *list, float *data, int w, int h, int c)
{
    FILE *fp = fopen(filename, "rb");
    image_size size;
    if (!fp || fread(&size, sizeof(size), 1, fp) != 1 || size.w != w || size.h != h || size.c != c) {
        record_unreadable(filename, list, fp != NULL);
        if (fp) fclose(fp);
        memset(data, 0, sizeof(float) * w * h * c);
        return 0;
    }
    size_t count = (size_t)w * h * c;
    unsigned char *raw = malloc(count);
    size_t got = fread(raw, 1, count, fp);
    for (size_t i = 0; i < count; i++)
        data[i] = i < got ? raw[i] / 255.0f : 0.0f;
    free(raw);
    fclose(fp);
    return 1;
}
