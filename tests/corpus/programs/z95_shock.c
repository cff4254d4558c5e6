/* One-dimensional shock tube, Lax-Friedrichs; reference solver of the surrogate. */
#define _GNU_SOURCE
#include <fenv.h>
#include <stdlib.h>

struct shock { int cells; double *rho, *mom, *ene, *flux; };

struct shock *shock_new(int cells, int checked)
{
    struct shock *s = calloc(1, sizeof *s);
    s->cells = cells;
    s->rho = calloc(6 * (size_t)cells, sizeof(double));
    s->mom = s->rho + cells;
    s->ene = s->mom + cells;
    s->flux = s->ene + cells;
    if (checked)
        feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
    return s;
}

void shock_start(struct shock *s, double left, double right, int at)
{
    for (int i = 0; i < s->cells; i++) {
        s->rho[i] = i < at ? left : right;
        s->mom[i] = 0;
        s->ene[i] = (i < at ? 1.0 : 0.1) / 0.4;
    }
}

static void relax(double *q, const double *flux, int n, double c)
{
    double before = q[0];
    for (int i = 1; i < n - 1; i++) {
        double here = q[i];
        q[i] = 0.5 * (before + q[i + 1]) - c * (flux[i + 1] - flux[i - 1]);
        before = here;
    }
}

void shock_run(struct shock *s, int steps, double c)
{
    int n = s->cells;
    double *fr = s->flux, *fm = fr + n, *fe = fm + n;
    for (int k = 0; k < steps; k++) {
        for (int i = 0; i < n; i++) {
            double u = s->mom[i] / s->rho[i];
            double p = 0.4 * (s->ene[i] - 0.5 * s->mom[i] * u);
            fr[i] = s->mom[i];
            fm[i] = s->mom[i] * u + p;
            fe[i] = (s->ene[i] + p) * u;
        }
        relax(s->rho, fr, n, c);
        relax(s->mom, fm, n, c);
        relax(s->ene, fe, n, c);
    }
}

void shock_read(const struct shock *s, float *out)
{
    for (int i = 0; i < s->cells; i++) {
        out[i] = (float)s->rho[i];
        out[s->cells + i] = (float)(s->mom[i] / s->rho[i]);
    }
}
