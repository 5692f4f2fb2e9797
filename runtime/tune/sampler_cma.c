/* sampler_cma: CMA-ES (Hansen 2016, "The CMA evolution strategy: a tutorial"), of the whole history each time: trials are taken
 * in generations by their numbers, so that the state is a function of the study's journal. Trials that others proposed, or that
 * have no value, count as the worst of their generation. Dimensions of steps and of choices are moved as numbers of [0, 1]. */
#include "runtime/tune/sampler_private.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int dims, offspring, parents;
  double weight[64], mass; /* of parents; 1 / Σ w² */
  double mean[SPACE_MOST], sigma, path[SPACE_MOST], sigma_path[SPACE_MOST];
  double c[SPACE_MOST][SPACE_MOST], basis[SPACE_MOST][SPACE_MOST], length[SPACE_MOST];
} Cma;

/* Eigenvectors (columns of basis) and square roots of eigenvalues of c, by Jacobi's rotations. */
static void decompose(Cma *s) {
  int n = s->dims;
  static _Thread_local double a[SPACE_MOST][SPACE_MOST];
  memcpy(a, s->c, sizeof a);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) s->basis[i][j] = i == j;
  for (int sweep = 0; sweep < 30; sweep++) {
    double off = 0;
    for (int i = 0; i < n; i++)
      for (int j = 0; j < i; j++) off += a[i][j] * a[i][j];
    if (off < 1e-24) break;
    for (int p = 0; p < n; p++)
      for (int q = p + 1; q < n; q++) {
        if (a[p][q] == 0) continue;
        double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
        double cosine = 1 / sqrt(t * t + 1), sine = t * cosine;
        for (int k = 0; k < n; k++) {
          double x = a[k][p], y = a[k][q];
          a[k][p] = cosine * x - sine * y;
          a[k][q] = sine * x + cosine * y;
        }
        for (int k = 0; k < n; k++) {
          double x = a[p][k], y = a[q][k];
          a[p][k] = cosine * x - sine * y;
          a[q][k] = sine * x + cosine * y;
          x = s->basis[k][p], y = s->basis[k][q];
          s->basis[k][p] = cosine * x - sine * y;
          s->basis[k][q] = sine * x + cosine * y;
        }
      }
  }
  for (int i = 0; i < n; i++) s->length[i] = sqrt(fmax(a[i][i], 1e-20));
}

static void cma_begin(Cma *s, int dims, double sigma, int offspring) {
  *s = (Cma){.dims = dims, .sigma = sigma, .offspring = offspring};
  s->parents = s->offspring / 2;
  double sum = 0, square = 0;
  for (int i = 0; i < s->parents; i++) {
    s->weight[i] = log((s->offspring + 1) / 2.0) - log(i + 1.0);
    sum += s->weight[i];
  }
  for (int i = 0; i < s->parents; i++) {
    s->weight[i] /= sum;
    square += s->weight[i] * s->weight[i];
  }
  s->mass = 1 / square;
  for (int i = 0; i < dims; i++) {
    s->mean[i] = 0.5;
    s->c[i][i] = 1;
  }
  decompose(s);
}

/* Numbers are reflected at the ends of [0, 1]. */
static double reflect(double x) {
  x = fabs(fmod(x, 2));
  return x > 1 ? 2 - x : x;
}

/* One of a generation, before it is reflected. */
static void cma_draw(const Cma *s, Random *random, double *x) {
  double z[SPACE_MOST];
  for (int i = 0; i < s->dims; i++) z[i] = s->length[i] * random_normal(random);
  for (int i = 0; i < s->dims; i++) {
    double sum = 0;
    for (int k = 0; k < s->dims; k++) sum += s->basis[i][k] * z[k];
    x[i] = s->mean[i] + s->sigma * sum;
  }
}

/* The parents' mean step y, brought to what a sphere would have shown: C^(-1/2) y. */
static void whiten(const Cma *s, const double *y, double *out) {
  double z[SPACE_MOST];
  for (int k = 0; k < s->dims; k++) {
    z[k] = 0;
    for (int i = 0; i < s->dims; i++) z[k] += s->basis[i][k] * y[i];
    z[k] /= s->length[k];
  }
  for (int i = 0; i < s->dims; i++) {
    out[i] = 0;
    for (int k = 0; k < s->dims; k++) out[i] += s->basis[i][k] * z[k];
  }
}

/* One generation: x[i] are the parents, the best first; `generation` from 1. */
static void adapt(Cma *s, double (*x)[SPACE_MOST], int generation) {
  int n = s->dims;
  double mass = s->mass, step[SPACE_MOST], white[SPACE_MOST], norm = 0;
  double c_sigma = (mass + 2) / (n + mass + 5);
  double damping = 1 + 2 * fmax(0, sqrt((mass - 1) / (n + 1)) - 1) + c_sigma;
  double c_path = (4 + mass / n) / (n + 4 + 2 * mass / n);
  double c_one = 2 / ((n + 1.3) * (n + 1.3) + mass);
  double c_mass = fmin(1 - c_one, 2 * (mass - 2 + 1 / mass) / ((n + 2.0) * (n + 2.0) + mass));
  double expected = sqrt(n) * (1 - 1 / (4.0 * n) + 1 / (21.0 * n * n));
  for (int d = 0; d < n; d++) {
    step[d] = 0;
    for (int i = 0; i < s->parents; i++)
      step[d] += s->weight[i] * (x[i][d] - s->mean[d]) / s->sigma;
  }
  whiten(s, step, white);
  for (int d = 0; d < n; d++) {
    s->sigma_path[d] =
        (1 - c_sigma) * s->sigma_path[d] + sqrt(c_sigma * (2 - c_sigma) * mass) * white[d];
    norm += s->sigma_path[d] * s->sigma_path[d];
  }
  norm = sqrt(norm);
  bool goes = norm / sqrt(1 - pow(1 - c_sigma, 2 * generation)) < (1.4 + 2 / (n + 1.0)) * expected;
  for (int d = 0; d < n; d++)
    s->path[d] = (1 - c_path) * s->path[d] + goes * sqrt(c_path * (2 - c_path) * mass) * step[d];
  double kept = 1 - c_one - c_mass + (goes ? 0 : c_one * c_path * (2 - c_path));
  for (int a = 0; a < n; a++)
    for (int b = 0; b < n; b++) {
      double rank = 0;
      for (int i = 0; i < s->parents; i++)
        rank +=
            s->weight[i] * (x[i][a] - s->mean[a]) * (x[i][b] - s->mean[b]) / (s->sigma * s->sigma);
      s->c[a][b] = kept * s->c[a][b] + c_one * s->path[a] * s->path[b] + c_mass * rank;
    }
  for (int d = 0; d < n; d++) s->mean[d] = reflect(s->mean[d] + s->sigma * step[d]);
  s->sigma = fmin(s->sigma * exp(c_sigma / damping * (norm / expected - 1)), 1);
  decompose(s);
}

/* The best `parents` of the trials from `first` on, where they stand; false where too few have values. */
static bool take_parents(const Cma *s, const Proposal *p, int first, double (*x)[SPACE_MOST]) {
  int order[128], count = 0;
  for (int i = 0; i < s->offspring; i++) {
    int at = count++;
    double value = observation_value(&p->seen[first + i]);
    for (; at > 0 && observation_value(&p->seen[first + order[at - 1]]) > value; at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
  if (!isfinite(observation_value(&p->seen[first + order[s->parents - 1]]))) return false;
  for (int i = 0; i < s->parents; i++) {
    const Observation *o = &p->seen[first + order[i]];
    for (int d = 0; d < s->dims; d++)
      x[i][d] =
          isnan(o->point[d]) ? s->mean[d] : dim_to_unit(&p->sampler->space->dim[d], o->point[d]);
  }
  return true;
}

Status sampler_next_cma(const Proposal *p, double *point) {
  const Space *space = p->sampler->space;
  Cma *s = malloc(sizeof *s);
  double(*x)[SPACE_MOST] = malloc(64 * sizeof *x), unit[SPACE_MOST];
  if (!s || !x) {
    free(s);
    free(x);
    return status_fail(STATUS_FAULT, "out of memory");
  }
  int offspring = 4 + (int)floor(3 * log(space->count));
  cma_begin(s, space->count, 0.3, offspring);
  int generation = 1;
  for (int first = 0; first + s->offspring <= p->count; first += s->offspring, generation++) {
    if (take_parents(s, p, first, x)) adapt(s, x, generation);
    if (s->sigma * s->length[0] <
        1e-9) { /* it has come to a point: anew, from there, with more of them */
      double mean[SPACE_MOST];
      memcpy(mean, s->mean, sizeof mean);
      cma_begin(s, space->count, 0.3, offspring);
      generation = 0;
      memcpy(s->mean, mean, sizeof mean);
    }
  }
  Random random = random_new(p->sampler->seed, (uint64_t)p->number, DRAW_CMA);
  for (int tries = 0; tries < (space->where_count ? 1000 : 20); tries++) {
    cma_draw(s, &random, unit);
    for (int d = 0; d < space->count; d++) unit[d] = reflect(unit[d]);
    space_from_unit(space, unit, point);
    if (proposal_is_free(p, point)) break;
  }
  free(s);
  free(x);
  return STATUS_OK;
}
