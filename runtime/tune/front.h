/* front: several goals at a time, all minimised. A point dominates another one if it is nowhere worse and somewhere better. */
#ifndef FT_RUNTIME_TUNE_FRONT_H
#define FT_RUNTIME_TUNE_FRONT_H
#include "plan/goals.h"
#include <stdbool.h>

bool front_dominates(const double *a, const double *b, int goals);
enum { FRONT_BY_VOLUME = 32 };
/* values: [count][goals], no NAN among them. rank: how good each is, 0 the best: by the fronts that remain when the ones before are taken away
 * (non-dominated sorting). In a front those come first that add most to the hypervolume of the ones before (greedy subset selection;
 * Guerreiro, Fonseca and Paquete 2016), and behind rank FRONT_BY_VOLUME the lonelier ones (crowding distance; Deb et al. 2002, "A fast and
 * elitist multiobjective genetic algorithm: NSGA-II"). False: no memory. */
bool front_rank(const double *values, int count, int goals, int *rank);
/* One number for each: max w z + 0.05 Σ w z of the values z brought to [0, 1] between the best and the worst of the first front, and
 * weights w of a simplex (the augmented Tchebycheff function of ParEGO; Knowles 2006). Values that are not finite stay so. */
void front_scalarise(const double *values, int count, int goals, const double *weights,
                     double *out);
/* weight: how much of the hypervolume of at most FRONT_BY_VOLUME points each alone dominates, the largest 1 and none 0 (Ozaki et al. 2022, "Multiobjective
 * tree-structured Parzen estimator"). All are 1 if not all values are finite. */
void front_weights(const double *values, int count, int goals, double *weight);
#endif
