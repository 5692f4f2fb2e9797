/* sampler_tpe: the tree-structured Parzen estimator (Bergstra et al. 2011; its settings after Watanabe 2023, "Tree-structured
 * Parzen estimator: understanding its algorithm components"). The trials are parted into the better ones and the rest; of
 * points drawn from the density of the better ones, the next is the one where that density is largest against the other.
 * A density is a mixture with one component for each trial and one that covers the whole range, over all dimensions together, so that
 * it knows which values go together. */
#define _GNU_SOURCE /* M_PI */
#include "runtime/tune/front.h"
#include "runtime/tune/sampler_private.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A density over all dimensions together needs the more points to find where the ratio is large, the more there are of them. */
enum { CANDIDATES_PER_DIM = 32, MOST_CANDIDATES_OF_TPE = 256, MOST_BETTER = 25 };

typedef struct {
  int count, dims;
  double *center;    /* [count][dims], of [0, 1] or a choice's number; NAN: inactive */
  double *deviation; /* [count][dims] */
  double *
      whole; /* [count][dims], the logarithm of its mass within [0, 1]; without steps, of that and √(2π) deviation */
  double *weight; /* [count], logarithms, their sum is 1 */
} Mixture;

typedef struct {
  double value;
  int index;
} Ranked;

static int compare_ranked(const void *a, const void *b) {
  const Ranked *x = a, *y = b;
  if (x->value != y->value) return x->value < y->value ? -1 : 1;
  return x->index - y->index;
}

/* As a component of the mixture: the last one, number count, is the prior. */
static void place_component(const Space *space, Mixture *m, int nth, const double *point) {
  for (int d = 0; d < space->count; d++) {
    const Dim *dim = &space->dim[d];
    double *center = &m->center[(long)nth * m->dims + d];
    if (!point)
      *center = dim->kind == DIM_CHOICE ? -1 : 0.5;
    else if (isnan(point[d]) || dim->kind == DIM_CHOICE)
      *center = point[d];
    else
      *center = dim_to_unit(dim, point[d]);
  }
}

/* The widths: as far as to the farther neighbour in a dimension (of the first and the last one: to the only one), but
 * between 1 / min(100, n + 1) of the range and all of it. The prior's is the whole range. */
static void choose_widths(const Space *space, Mixture *m) {
  int n = m->count - 1;
  double least = 1.0 / fmin(100, 1 + n);
  for (int d = 0; d < m->dims; d++) {
    if (space->dim[d].kind == DIM_CHOICE) continue;
    for (int i = 0; i <= n; i++) {
      long at = (long)i * m->dims + d;
      double here = m->center[at], below = -1, above = 2;
      for (int j = 0; j < n && i < n; j++) {
        double other = m->center[(long)j * m->dims + d];
        if (j == i || isnan(other)) continue;
        if (other <= here && (other < here || j < i)) below = fmax(below, other);
        if (other >= here && (other > here || j > i)) above = fmin(above, other);
      }
      double width = below < 0 && above > 1 ? fmax(here, 1 - here)
                     : below < 0            ? above - here
                     : above > 1            ? here - below
                                            : fmax(here - below, above - here);
      m->deviation[at] = width = i == n ? 1 : fmin(fmax(width, least), 1);
      m->whole[at] = isnan(here) ? 0 : normal_log_mass(-here / width, (1 - here) / width);
      if (!dim_values(&space->dim[d])) m->whole[at] += log(width) + 0.5 * log(2 * M_PI);
    }
  }
}

/* Of many, the oldest count less. */
static void weigh_by_age(const Ranked *ranked, int count, double *weight) {
  for (int i = 0; i < count; i++) {
    int newer = 0;
    for (int j = 0; j < count && count > MOST_BETTER; j++)
      newer += ranked[j].index > ranked[i].index;
    weight[i] = newer < MOST_BETTER
                    ? 1
                    : 1 - (1 - 1.0 / count) * (newer - MOST_BETTER + 1) / (count - MOST_BETTER);
  }
}

/* The better ones count alike; of several goals, by what their values alone add to the volume that all enclose. */
static void weigh_better(const Proposal *p, const Ranked *ranked, int count, double *weight) {
  int goals = p->sampler->goals;
  double values[MOST_BETTER * GOALS_MOST];
  for (int i = 0; i < count; i++) weight[i] = 1;
  if (goals < 2) return;
  for (int i = 0; i < count; i++) {
    const Observation *one = &p->seen[ranked[i].index];
    if (one->state != TRIAL_COMPLETE) return; /* so few have all their values */
    memcpy(values + (long)i * goals, one->values, (size_t)goals * sizeof *values);
  }
  front_weights(values, count, goals, weight);
}

/* weight: [count]; the prior's is 1 */
static bool mixture_new(const Proposal *p, const Ranked *ranked, int count, const double *weight,
                        Mixture *m) {
  const Space *space = p->sampler->space;
  *m = (Mixture){.count = count + 1, .dims = space->count};
  size_t room = (size_t)m->count * (size_t)m->dims;
  m->center = malloc(room * sizeof *m->center);
  m->deviation = malloc(room * sizeof *m->deviation);
  m->whole = malloc(room * sizeof *m->whole);
  m->weight = malloc((size_t)m->count * sizeof *m->weight);
  if (!m->center || !m->deviation || !m->whole || !m->weight) return false;
  double sum = 0;
  for (int i = 0; i <= count; i++) {
    place_component(space, m, i, i < count ? p->seen[ranked[i].index].point : NULL);
    sum += m->weight[i] = i < count ? weight[i] : 1;
  }
  for (int i = 0; i <= count; i++) m->weight[i] = log(m->weight[i] / sum);
  choose_widths(space, m);
  return true;
}

static void mixture_free(Mixture *m) {
  free(m->center);
  free(m->deviation);
  free(m->whole);
  free(m->weight);
}

/* What a component gives the choices of a dimension: most to its own, something to each. */
static double choice_share(const Mixture *m, int values, double center, int choice) {
  if (center < 0) return 1.0 / values;
  double each = 1.0 / m->count;
  return (each + (choice == (int)center)) / (1 + each * values);
}

static double log_part(const Space *space, const Mixture *m, int nth, int d, double at,
                       double value) {
  const Dim *dim = &space->dim[d];
  double center = m->center[(long)nth * m->dims + d];
  if (isnan(value)) return 0;
  if (isnan(center)) /* it was not there: nothing is known of it */
    return dim->kind == DIM_CHOICE ? -log(dim->choice_count) : 0;
  if (dim->kind == DIM_CHOICE) return log(choice_share(m, dim->choice_count, center, (int)value));
  double deviation = m->deviation[(long)nth * m->dims + d];
  double whole = m->whole[(long)nth * m->dims + d];
  int64_t values = dim_values(dim);
  if (values) { /* the mass of its share of the range */
    double half = 0.5 / (double)values;
    return normal_log_mass((at - half - center) / deviation, (at + half - center) / deviation) -
           whole;
  }
  double z = (at - center) / deviation;
  return -0.5 * z * z - whole;
}

static double log_density(const Space *space, const Mixture *m, const double *point) {
  double most = -INFINITY, sum = 0, at[SPACE_MOST];
  double *each = malloc((size_t)m->count * sizeof *each);
  if (!each) return NAN;
  for (int d = 0; d < space->count; d++)
    at[d] = isnan(point[d]) || space->dim[d].kind == DIM_CHOICE
                ? NAN
                : dim_to_unit(&space->dim[d], point[d]);
  for (int i = 0; i < m->count; i++) {
    each[i] = m->weight[i];
    for (int d = 0; d < space->count; d++) each[i] += log_part(space, m, i, d, at[d], point[d]);
    most = fmax(most, each[i]);
  }
  for (int i = 0; i < m->count; i++) sum += exp(each[i] - most);
  free(each);
  return most + log(sum);
}

static void tpe_draw(const Space *space, const Mixture *m, Random *random, double *point) {
  double left = random_unit(random);
  int nth = 0;
  while (nth < m->count - 1 && (left -= exp(m->weight[nth])) > 0) nth++;
  for (int d = 0; d < space->count; d++) {
    const Dim *dim = &space->dim[d];
    double center = m->center[(long)nth * m->dims + d];
    point[d] = NAN;
    if (!space_is_active(space, d, point)) continue;
    if (isnan(center)) {
      point[d] = dim_from_unit(dim, random_unit(random));
    } else if (dim->kind == DIM_CHOICE) {
      double rest = random_unit(random);
      int choice = 0;
      while (choice < dim->choice_count - 1 &&
             (rest -= choice_share(m, dim->choice_count, center, choice)) > 0)
        choice++;
      point[d] = choice;
    } else {
      double deviation = m->deviation[(long)nth * m->dims + d];
      point[d] = dim_from_unit(dim, random_normal_within(random, center, deviation, 0, 1));
    }
  }
}

/* Finished trials by value; failures come last, and those that run count as the worst, so that others go elsewhere. */
static int rank_trials(const Proposal *p, Ranked *ranked) {
  int count = 0;
  for (int i = 0; i < p->count; i++) {
    ranked[count++] = (Ranked){observation_value(&p->seen[i]), i};
  }
  qsort(ranked, (size_t)count, sizeof *ranked, compare_ranked);
  return count;
}

static Status tpe_choose(const Proposal *p, const Mixture *better, const Mixture *rest,
                         double *point) {
  const Space *space = p->sampler->space;
  Random random = random_new(p->sampler->seed, (uint64_t)p->number, DRAW_TPE);
  double most = -INFINITY;
  sampler_next_random(p, point);
  int candidates = CANDIDATES_PER_DIM * space->count;
  if (candidates > MOST_CANDIDATES_OF_TPE) candidates = MOST_CANDIDATES_OF_TPE;
  for (int i = 0, draws = 0; i < candidates && draws < 50 * candidates; draws++) {
    double try[SPACE_MOST];
    tpe_draw(space, better, &random, try);
    if (!space_allows(space, try)) continue;
    i++;
    double gain = log_density(space, better, try) - log_density(space, rest, try);
    if (isnan(gain)) return status_fail(STATUS_FAULT, "out of memory");
    if (gain > most && proposal_is_free(p, try)) {
      most = gain;
      memcpy(point, try, (size_t)space->count * sizeof *try);
    }
  }
  return STATUS_OK;
}

Status sampler_next_tpe(const Proposal *p, double *point) {
  int finished = proposal_finished(p);
  if (finished < SAMPLER_FIRST) return sampler_next_random(p, point), STATUS_OK;
  Ranked *ranked = malloc((size_t)p->count * sizeof *ranked);
  double *weight = malloc((size_t)p->count * sizeof *weight);
  Mixture better = {0}, rest = {0};
  bool fine = ranked && weight;
  if (fine) {
    int count = rank_trials(p, ranked);
    int good = (int)fmin(ceil(0.1 * finished), MOST_BETTER);
    weigh_better(p, ranked, good, weight);
    weigh_by_age(ranked + good, count - good, weight + good);
    fine = mixture_new(p, ranked, good, weight, &better) &&
           mixture_new(p, ranked + good, count - good, weight + good, &rest);
  }
  Status status =
      fine ? tpe_choose(p, &better, &rest, point) : status_fail(STATUS_FAULT, "out of memory");
  mixture_free(&better);
  mixture_free(&rest);
  free(weight);
  free(ranked);
  return status;
}
