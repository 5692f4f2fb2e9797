/* ftc_simulate: `ftc --simulate`: reads the cluster and measured times, prints the simulation, writes
 * its trace. */
#ifndef FT_TOOLS_FTC_SIMULATE_H
#define FT_TOOLS_FTC_SIMULATE_H
#include "plan/plan.h"
#include "simulate/cluster.h"
#include <stdio.h>

typedef struct {
  const char *spec, *times, *trace; /* NULL: not given; without a spec there is no simulation */
  Cluster cluster;
} SimulateRequest;

/* Reads the spec. An exit code; the sentence is on standard error. */
int simulate_read_request(Arena *arena, SimulateRequest *request);
/* Is the model for as many ranks? Exit code 1 and a sentence that says what to do if not. */
int simulate_check_ranks(const SimulateRequest *request, const SettingValue *settings);
/* `plan`: of each stage. */
int simulate_report(const SimulateRequest *request, Arena *arena, const Plan *const *plan,
                    int stages, FILE *out);
#endif
