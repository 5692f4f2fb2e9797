/* bench, info: what `ftrun bench` and `ftrun info` print. */
#ifndef FT_RUNTIME_BENCH_H
#define FT_RUNTIME_BENCH_H
#include "plan/gpu_model.h"
#include "runtime/execute/feed.h"
#include <stdio.h>

typedef struct {
  const char *programme; /* what is measured: PROGRAMME_STEP or PROGRAMME_EVALUATE */
  int steps;        /* measured; 0: as many as fit in about two seconds, at least 20 */
  bool per_kernel;  /* also the table of launches and calls */
  const char *json; /* a file for the table, or NULL */
  const Gpu *gpu;   /* with a device that counts: also the time that it is reckoned to take, or NULL */
  int64_t sample;   /* with gpu: run only so many blocks of each launch, and no step as a whole; 0: all */
  Feed *feed; /* of PROGRAMME_STEP: steps on loaded data, loading included in the time; NULL: one made-up batch */
} BenchOptions;
/* exec_write_settings and exec_init must have been called. STATUS_USER if the plan has no such programme. */
STATUS_CHECKED Status bench_run(Exec *exec, const BenchOptions *options, FILE *out);
/* Samples of a time through the programme, on each rank. */
double bench_samples(const Exec *exec, const char *programme);
/* A made-up batch for an Exec: uniform numbers in floats and u8, class numbers and ids of all that there are; zeros in other integers. */
void bench_fill_batch(const Plan *plan, void *batch, uint64_t seed);

/* The plan, readable: model, target, parameters, memory, inputs, data, settings, launches. */
STATUS_CHECKED Status info_print(const Artifact *artifact, FILE *out);
#endif
