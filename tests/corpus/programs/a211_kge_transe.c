#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int h, t, r; } Triple;

static char in_path[512];
static int entity_total, relation_total, train_total, test_total, valid_total;
static Triple *train_list, *test_list, *valid_list;
static int *head_lef, *head_rig, *tail_lef, *tail_rig;
static int *head_type, *tail_type;
static unsigned long long next_random = 3;

static unsigned long long rnd(void) {
    return next_random = next_random * 25214903917ULL + 11;
}

void set_in_path(const char *path) { snprintf(in_path, sizeof(in_path), "%s", path); }
int get_entity_total(void) { return entity_total; }
int get_relation_total(void) { return relation_total; }
int get_train_total(void) { return train_total; }
int get_test_total(void) { return test_total; }

static FILE *open_list(const char *name) {
    char path[1024];
    snprintf(path, sizeof(path), "%s%s", in_path, name);
    return fopen(path, "r");
}

static Triple *read_triples(const char *name, int *total) {
    FILE *fin = open_list(name);
    fscanf(fin, "%d", total);
    Triple *list = calloc(*total, sizeof(Triple));
    for (int i = 0; i < *total; i++)
        fscanf(fin, "%d %d %d", &list[i].h, &list[i].t, &list[i].r);
    fclose(fin);
    return list;
}

void import_train_files(void) {
    FILE *fin = open_list("relation2id.txt");
    fscanf(fin, "%d", &relation_total);
    fclose(fin);
    fin = open_list("entity2id.txt");
    fscanf(fin, "%d", &entity_total);
    fclose(fin);
    train_list = read_triples("train2id.txt", &train_total);
}

void import_test_files(void) {
    test_list = read_triples("test2id.txt", &test_total);
    valid_list = read_triples("valid2id.txt", &valid_total);
}

void import_type_files(void) {
    int relations, rel, n;
    head_lef = calloc(relation_total, sizeof(int));
    head_rig = calloc(relation_total, sizeof(int));
    tail_lef = calloc(relation_total, sizeof(int));
    tail_rig = calloc(relation_total, sizeof(int));
    FILE *fin = open_list("type_constrain.txt");
    fscanf(fin, "%d", &relations);
    int total_head = 0, total_tail = 0;
    head_type = calloc((size_t)relation_total * entity_total, sizeof(int));
    tail_type = calloc((size_t)relation_total * entity_total, sizeof(int));
    for (int i = 0; i < relations; i++) {
        fscanf(fin, "%d %d", &rel, &n);
        head_lef[rel] = total_head;
        for (int j = 0; j < n; j++) fscanf(fin, "%d", &head_type[total_head++]);
        head_rig[rel] = total_head;
        fscanf(fin, "%d %d", &rel, &n);
        tail_lef[rel] = total_tail;
        for (int j = 0; j < n; j++) fscanf(fin, "%d", &tail_type[total_tail++]);
        tail_rig[rel] = total_tail;
    }
    fclose(fin);
}

void sample_batch(long *h, long *t, long *r, int batch, int neg) {
    for (int b = 0; b < batch; b++) {
        Triple *x = &train_list[(rnd() >> 16) % train_total];
        for (int k = 0; k <= neg; k++) {
            int at = k * batch + b;
            h[at] = x->h; t[at] = x->t; r[at] = x->r;
            if (k == 0) continue;
            long e = (rnd() >> 16) % entity_total;
            if (k & 1) t[at] = e; else h[at] = e;
        }
    }
}

void get_test_tail(int index, long *h, long *t, long *r) {
    for (int e = 0; e < entity_total; e++) {
        h[e] = test_list[index].h; t[e] = e; r[e] = test_list[index].r;
    }
}

int test_tail_rank(int index, const float *score, int type_constrain) {
    int answer = test_list[index].t, rel = test_list[index].r, rank = 1;
    if (type_constrain) {
        for (int i = tail_lef[rel]; i < tail_rig[rel]; i++)
            if (score[tail_type[i]] < score[answer]) rank++;
        return rank;
    }
    for (int e = 0; e < entity_total; e++)
        if (score[e] < score[answer]) rank++;
    return rank;
}
