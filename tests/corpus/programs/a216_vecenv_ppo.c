#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(ENV_BALANCE)

const int OBS_N = 4;
const int ACT_N = 2;
typedef struct { float x, v, a, w; int t; } State;

int env_bytes(void) { return sizeof(State); }

void env_reset(State *s, unsigned seed, float *obs) {
    memset(s, 0, sizeof(*s));
    s->a = ((int)(seed % 200) - 100) * 0.0005f;
    obs[0] = s->x; obs[1] = s->v; obs[2] = s->a; obs[3] = s->w;
}

int env_step(State *s, int action, float *obs, float *reward) {
    float f = action ? 10.0f : -10.0f, dt = 0.02f;
    float tmp = (f + 0.05f * s->w * s->w * sinf(s->a)) / 1.1f;
    float acc = (9.8f * sinf(s->a) - cosf(s->a) * tmp) / (0.5f * (1.333f - 0.09f * cosf(s->a) * cosf(s->a)));
    s->x += dt * s->v; s->v += dt * (tmp - 0.045f * acc * cosf(s->a));
    s->a += dt * s->w; s->w += dt * acc;
    obs[0] = s->x; obs[1] = s->v; obs[2] = s->a; obs[3] = s->w;
    *reward = 1.0f;
    return fabsf(s->x) > 2.4f || fabsf(s->a) > 0.21f || ++s->t >= 200;
}

#elif defined(ENV_DRIFT)

static const int OBS_N = 5;
static const int ACT_N = 3;
typedef struct { float x, y, vx, vy, wind; int t; } State;

int env_bytes(void) { return sizeof(State); }

static void observe(const State *s, float *obs) {
    obs[0] = s->x; obs[1] = s->y; obs[2] = s->vx; obs[3] = s->vy; obs[4] = s->wind;
}

void env_reset(State *s, unsigned seed, float *obs) {
    memset(s, 0, sizeof(*s));
    s->y = 1.0f;
    s->wind = ((int)(seed % 200) - 100) * 0.001f;
    observe(s, obs);
}

int env_step(State *s, int action, float *obs, float *reward) {
    s->vx += 0.05f * (action - 1) + 0.05f * s->wind;
    s->x += 0.1f * s->vx; s->y -= 0.01f;
    observe(s, obs);
    *reward = 1.0f - fabsf(s->x);
    return s->y <= 0.0f || fabsf(s->x) > 1.0f || ++s->t >= 200;
}

#else

typedef void (*reset_fn)(void *, unsigned, float *);
typedef int (*step_fn)(void *, int, float *, float *);
typedef struct {
    int n, obs_n, act_n, bytes;
    unsigned seed;
    char *states;
    reset_fn reset;
    step_fn step;
} VecEnv;

VecEnv *vec_create(const char *plugin, int n, unsigned seed) {
    void *so = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    if (!so) return NULL;
    VecEnv *v = calloc(1, sizeof(VecEnv));
    v->n = n;
    v->seed = seed;
    v->reset = (reset_fn)dlsym(so, "env_reset");
    v->step = (step_fn)dlsym(so, "env_step");
    v->obs_n = *(const int *)dlsym(so, "OBS_N");
    v->act_n = *(const int *)dlsym(so, "ACT_N");
    v->bytes = ((int (*)(void))dlsym(so, "env_bytes"))();
    v->states = calloc(n, v->bytes);
    return v;
}

int vec_obs_n(VecEnv *v) { return v->obs_n; }
int vec_act_n(VecEnv *v) { return v->act_n; }

void vec_reset(VecEnv *v, float *obs) {
    for (int i = 0; i < v->n; i++)
        v->reset(v->states + i * v->bytes, v->seed++ * 7919u, obs + i * v->obs_n);
}

void vec_step(VecEnv *v, const long *actions, float *obs, float *reward, float *done) {
    for (int i = 0; i < v->n; i++) {
        done[i] = v->step(v->states + i * v->bytes, (int)actions[i], obs + i * v->obs_n, reward + i);
        if (done[i]) v->reset(v->states + i * v->bytes, v->seed++ * 7919u, obs + i * v->obs_n);
    }
}

void vec_close(VecEnv *v) { free(v->states); free(v); }

#endif
