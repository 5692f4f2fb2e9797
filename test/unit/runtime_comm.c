/* comm: which rank the environment says this process is, and what a process does that is alone. */
#include "runtime/communicate/comm.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "SLURM_STEP_ID",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_NODEID",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE"};

/* "RANK=1 WORLD_SIZE=2", and none of the others */
static void environment(const char *text) {
  char copy[512];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
  assert_true(strlen(text) < sizeof copy);
  strcpy(copy, text);
  for (char *at = strtok(copy, " "); at; at = strtok(NULL, " ")) {
    char *value = strchr(at, '=');
    *value = 0;
    setenv(at, value + 1, 1);
  }
}

static void is_place(const char *text, const char *launcher, int rank, int ranks, int local_rank,
                     int local_ranks) {
  CommPlace place;
  environment(text);
  assert_int_equal(comm_place(&place), STATUS_OK);
  assert_int_equal(place.rank, rank);
  assert_int_equal(place.ranks, ranks);
  assert_int_equal(place.local_rank, local_rank);
  assert_int_equal(place.local_ranks, local_ranks);
  if (launcher)
    assert_string_equal(place.launcher, launcher);
  else
    assert_null(place.launcher);
}

static void is_refused(const char *text, const char *part) {
  CommPlace place;
  environment(text);
  assert_int_equal(comm_place(&place), STATUS_USER);
  if (!strstr(status_message(), part)) fail_msg("%s", status_message());
}

static void launchers(void **state) {
  (void)state;
  is_place("", NULL, 0, 1, 0, 1);
  is_place("OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 "
           "OMPI_COMM_WORLD_LOCAL_SIZE=4",
           "mpirun", 5, 8, 1, 4);
  is_place("PMI_RANK=1 PMI_SIZE=2", "mpirun", 1, 2, 1, 2);
  is_place("SLURM_STEP_ID=0 SLURM_PROCID=6 SLURM_NTASKS=7 SLURM_LOCALID=0 SLURM_NODEID=3 "
           "SLURM_STEP_TASKS_PER_NODE=2(x3),1",
           "srun", 6, 7, 0, 1);
  is_place("SLURM_STEP_ID=4 SLURM_PROCID=3 SLURM_NTASKS=7 SLURM_LOCALID=1 SLURM_NODEID=1 "
           "SLURM_STEP_TASKS_PER_NODE=2(x3),1",
           "srun", 3, 7, 1, 2);
  is_place("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", "torchrun", 3, 4, 1, 2);
  is_place("RANK=0 WORLD_SIZE=1", "torchrun", 0, 1, 0, 1);
}

/* A batch script and an interactive shell of a job are no step of it; words that others use too. */
static void nobodys(void **state) {
  (void)state;
  is_place("SLURM_PROCID=0 SLURM_NTASKS=64 SLURM_LOCALID=0", NULL, 0, 1, 0, 1);
  is_place("SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_NTASKS=64", NULL, 0, 1, 0, 1);
  is_place("RANK=major", NULL, 0, 1, 0, 1);
  is_place("WORLD_SIZE=12", NULL, 0, 1, 0, 1);
  is_place("RANK= WORLD_SIZE=", NULL, 0, 1, 0, 1);
}

/* srun starts one mpirun or torchrun on each node, and these the ranks. */
static void within_each_other(void **state) {
  (void)state;
  is_place("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 RANK=5 WORLD_SIZE=8 "
           "LOCAL_RANK=1 LOCAL_WORLD_SIZE=4",
           "torchrun", 5, 8, 1, 4);
  is_place("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 OMPI_COMM_WORLD_RANK=2 "
           "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=2",
           "mpirun", 2, 4, 0, 2);
  is_place("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 RANK=2 WORLD_SIZE=4", "mpirun", 2, 4, 2,
           4);
}

static void contradictions(void **state) {
  (void)state;
  is_refused("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 RANK=0 WORLD_SIZE=1",
             "OMPI_COMM_WORLD_RANK=2 and OMPI_COMM_WORLD_SIZE=4 say one thing, RANK=0 and "
             "WORLD_SIZE=1 another");
  is_refused("RANK=4 WORLD_SIZE=4", "RANK=4 and WORLD_SIZE=4: ranks are counted from 0");
  is_refused("RANK=-1 WORLD_SIZE=4", "RANK=-1: expected a number from 0");
  is_refused("RANK=1 WORLD_SIZE=4x", "WORLD_SIZE=4x: expected a number from 1");
  is_refused("RANK=1 WORLD_SIZE=99999999999999999999", "expected a number");
  is_refused("PMI_RANK=1", "PMI_RANK is set, and PMI_SIZE is not");
  is_refused("SLURM_STEP_ID=0 SLURM_NTASKS=2", "SLURM_NTASKS is set, and SLURM_PROCID is not");
  is_refused("RANK=1 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "rank 2 of 2 on this machine");
  is_refused("RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=4", "of 4 on this machine, and");
}

static void alone(void **state) {
  (void)state;
  Comm *comm = NULL;
  environment("");
  assert_int_equal(comm_open(&(CommOptions){0}, &comm), STATUS_OK);
  assert_null(comm);
  assert_int_equal(comm_rank(comm), 0);
  assert_int_equal(comm_ranks(comm), 1);
  assert_string_equal(comm_text(comm), "1 rank");
  assert_int_equal(comm_open(&(CommOptions){.ranks = 1}, &comm), STATUS_OK);
  assert_null(comm);
  assert_int_equal(comm_open(&(CommOptions){.ranks = 2}, &comm), STATUS_USER);
  assert_non_null(strstr(status_message(), "2 ranks are expected, and there is 1"));
  float x[] = {1, 2, 3}, out[] = {0, 0, 0};
  CommWork work = {.dtype = DT_F32, .count = 3, .x = x, .out = out, .label = "x"};
  for (CommKind kind = COMM_ALL_REDUCE; kind <= COMM_BROADCAST; kind++) {
    memset(out, 0, sizeof out);
    work.kind = kind;
    assert_int_equal(comm_do(comm, &work), STATUS_OK);
    assert_memory_equal(out, x, sizeof x);
  }
  work.kind = COMM_SEND;
  assert_int_equal(comm_do(comm, &work), STATUS_USER);
  assert_non_null(strstr(status_message(), "this process is alone"));
  work.kind = COMM_BROADCAST;
  work.peer = 1;
  assert_int_equal(comm_do(comm, &work), STATUS_USER);
  assert_int_equal(comm_barrier(comm, "start"), STATUS_OK);
  assert_int_equal(comm_same(comm, "the plan", x, sizeof x), STATUS_OK);
  comm_close(comm, STATUS_OK);
  comm_close(NULL, STATUS_FAULT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(launchers), cmocka_unit_test(nobodys),
                                     cmocka_unit_test(within_each_other),
                                     cmocka_unit_test(contradictions), cmocka_unit_test(alone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
