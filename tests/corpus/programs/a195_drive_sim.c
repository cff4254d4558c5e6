#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROAD_POINTS 6000
#define MAX_AGENTS 8

typedef struct {
    float x, y, heading, type;
} road_point_t;

typedef struct {
    float x, y, v, heading, goal_x, goal_y;
} agent_t;

typedef struct {
    road_point_t road[MAX_ROAD_POINTS];
    int num_road;
    int num_agents;
    agent_t *agents[MAX_AGENTS];
} world_t;

world_t *world_create(int num_agents)
{
    world_t *w = calloc(1, sizeof(world_t));
    w->num_agents = num_agents;
    for (int i = 0; i < num_agents; i++)
        w->agents[i] = calloc(1, sizeof(agent_t));
    return w;
}

void world_destroy(world_t *w)
{
    for (int i = 0; i < w->num_agents; i++)
        free(w->agents[i]);
    free(w);
}

static float triangle_area(const float *a, const float *b, const float *c)
{
    return 0.5f * fabsf((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1]));
}

void world_add_polyline(world_t *w, const float *xy, int n, int type, float reduction)
{
    int last = 0;
    for (int i = 0; i < n; i++) {
        int ends = i == 0 || i == n - 1;
        if (!ends && triangle_area(xy + 2 * last, xy + 2 * i, xy + 2 * (i + 1)) < reduction)
            continue;
        road_point_t *p = &w->road[w->num_road++];
        p->x = xy[2 * i];
        p->y = xy[2 * i + 1];
        p->heading = atan2f(xy[2 * i + 1] - xy[2 * last + 1], xy[2 * i] - xy[2 * last]);
        p->type = (float)type;
        last = i;
    }
}

void world_reset(world_t *w, const float *state)
{
    for (int i = 0; i < w->num_agents; i++)
        memcpy(w->agents[i], state + 6 * i, sizeof(agent_t));
}

void world_step(world_t *w, const float *act, float *reward)
{
    for (int i = 0; i < w->num_agents; i++) {
        agent_t *a = w->agents[i];
        float before = hypotf(a->goal_x - a->x, a->goal_y - a->y);
        a->heading += 0.1f * act[2 * i + 1];
        a->v += 0.1f * act[2 * i];
        a->x += 0.1f * a->v * cosf(a->heading);
        a->y += 0.1f * a->v * sinf(a->heading);
        reward[i] = before - hypotf(a->goal_x - a->x, a->goal_y - a->y);
    }
}

void world_observe(const world_t *w, float radius, float *obs)
{
    for (int i = 0; i < w->num_agents; i++) {
        const agent_t *a = w->agents[i];
        float near[4] = {0, 0, 0, 0}, best = radius;
        int count = 0;
        for (int k = 0; k < w->num_road; k++) {
            float dx = w->road[k].x - a->x, dy = w->road[k].y - a->y, d = hypotf(dx, dy);
            if (d > radius)
                continue;
            count++;
            if (d < best) {
                best = d;
                near[0] = dx;
                near[1] = dy;
                near[2] = w->road[k].heading;
                near[3] = w->road[k].type;
            }
        }
        float *o = obs + 10 * i;
        o[0] = a->goal_x - a->x;
        o[1] = a->goal_y - a->y;
        o[2] = a->v;
        o[3] = cosf(a->heading);
        o[4] = sinf(a->heading);
        memcpy(o + 5, near, sizeof near);
        o[9] = (float)count / 100.0f;
    }
}
