/* comm_program: one rank of test/e2e/comm.py, which starts several by mpirun.
 *   comm_program works FOLDER SEED PIECE [DATA PIPELINE TENSOR]
 *                                          does the works of FOLDER/cases, each a line "kind op
 *                                          peer dtype count in_place over", on FOLDER/x.LINE.RANK;
 *                                          the last three: a mesh
 *   comm_program gpu …                     the same by NCCL, one after the other, on GPUs
 *   comm_program stages MESSAGES 0 0 DATA 2 TENSOR
 *                                          the two stages of a pipeline, with programs of their own
 *   comm_program fault WHAT TIMEOUT        rank 1 does WHAT in the middle of it
 *   comm_program speed COUNT TIMES         times all_reduce of f32
 * COMM_PROGRAM_APART=1: the ranks share no memory */
#include "base/clock.h"
#include "runtime/communicate/nccl.h"
#include "runtime/device/cuda/cuda_driver.h"
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 512, AT_ONCE = 40 };
static Mesh mesh;

static int ended(Comm *comm, Status status) {
  if (status != STATUS_OK && comm_speaks(comm)) fprintf(stderr, "said: %s\n", status_message());
  comm_close(comm, status);
  return (int)status;
}

static void pause_for(double seconds) {
  struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&time, NULL);
}

/* ── works ────────────────────────────────────────────────────────────────────────────────── */
typedef struct {
  CommWork work;
  char *x, *out, label[32];
  int64_t x_bytes, out_bytes, number;
  bool in_place;
} Case;

static bool read_case(const Comm *comm, const char *line, Case *c) {
  char kind[32], dtype[8];
  int op, peer, in_place, over;
  long count;
  if (sscanf(line, "%31s %d %d %7s %ld %d %d", kind, &op, &peer, dtype, &count, &in_place, &over) !=
      7)
    return false;
  int ranks = comm_size(comm, (MeshAxis)over);
  *c = (Case){.work = {.op = (CommOp)op, .peer = peer, .count = count, .over = (MeshAxis)over},
              .in_place = in_place};
  c->work.is_shared = true;
  while (strcmp(comm_kind_text(c->work.kind), kind)) c->work.kind++;
  if (!dtype_parse_named(dtype, &c->work.dtype)) return false;
  c->x_bytes = c->out_bytes = count * dtype_bytes(c->work.dtype);
  if (c->work.kind == COMM_ALL_GATHER) c->out_bytes *= ranks;
  if (c->work.kind == COMM_REDUCE_SCATTER) c->out_bytes /= ranks;
  return true;
}

static void transfer(const char *folder, char what, int index, int rank, char *bytes,
                     int64_t count) {
  char path[512];
  snprintf(path, sizeof path, "%s/%c.%d.%d", folder, what, index, rank);
  FILE *file = fopen(path, what == 'x' ? "rb" : "wb");
  size_t done = !file          ? 0
                : what == 'x' ? fread(bytes, 1, (size_t)count, file)
                              : fwrite(bytes, 1, (size_t)count, file);
  if (!file || done != (size_t)count) {
    fprintf(stderr, "%s: not of %lld bytes\n", path, (long long)count);
    exit(STATUS_FAULT);
  }
  fclose(file);
}

/* Some that the ranks share as long as there is some; without, the work is not shared. */
static char *shared_memory;
static int64_t shared_left;
static char *some_memory(int64_t bytes, bool *is_shared) {
  int64_t whole = (bytes + 64) & ~(int64_t)63;
  *is_shared = *is_shared && shared_memory && whole <= shared_left;
  if (!*is_shared) return malloc((size_t)bytes + 1);
  shared_left -= whole;
  return shared_memory + shared_left;
}

static void prepare(const Comm *comm, Case *c, const char *folder, int index) {
  int rank = comm_rank(comm);
  c->x = some_memory(c->x_bytes, &c->work.is_shared);
  c->out = some_memory(c->out_bytes, &c->work.is_shared);
  transfer(folder, 'x', index, rank, c->x, c->x_bytes);
  memset(c->out, 0x55, (size_t)c->out_bytes);
  c->work.x = c->x;
  c->work.out = c->out;
  snprintf(c->label, sizeof c->label, "case %d", index);
  c->work.label = c->label;
  if (!c->in_place) return;
  bool is_gather = c->work.kind == COMM_ALL_GATHER;
  char *at = c->out + (is_gather ? mesh_index(&mesh, c->work.over, rank) * c->x_bytes : 0);
  memcpy(at, c->x, (size_t)c->x_bytes);
  c->work.x = at;
}

static Status do_works(Comm *comm, const char *folder, unsigned seed) {
  static Case cases[MOST];
  enum { SHARED = 64 << 20 };
  int count = 0, rank = comm_rank(comm), begun = 0;
  shared_memory = comm_memory_new(comm, shared_left = SHARED);
  char path[512], line[128];
  snprintf(path, sizeof path, "%s/cases", folder);
  FILE *file = fopen(path, "r");
  while (file && count < MOST && fgets(line, sizeof line, file) &&
         read_case(comm, line, &cases[count]))
    prepare(comm, &cases[count], folder, count), count++;
  if (!count) return status_fail(STATUS_USER, "%s: no cases", path);
  fclose(file);
  srand(seed + (unsigned)rank * 77);
  for (int i = 0; i < count; i++) { /* ends come late, and not in the order of the beginnings */
    for (; begun < count && begun < i + AT_ONCE; begun++) {
      if (rand() % 8 == 0) pause_for(1e-3 * (rand() % 4));
      STATUS_TRY(comm_begin(comm, &cases[begun].work, &cases[begun].number));
    }
    int other = i ^ 1;
    if (other >= count) other = i;
    STATUS_TRY(comm_end(comm, cases[other].number));
    transfer(folder, 'y', other, rank, cases[other].out, cases[other].out_bytes);
  }
  STATUS_TRY(comm_barrier(comm, "the end"));
  STATUS_TRY(comm_same(comm, "the list of cases", &count, sizeof count));
  Status differs = comm_same(comm, "the rank", &rank, sizeof rank);
  if (rank == 0) printf("differs %d: %s\n", (int)differs, status_message());
  return STATUS_OK;
}

/* ── faults ───────────────────────────────────────────────────────────────────────────────── */
/* What rank 1 does before its sixth collective. False: it goes on. */
static bool strike(const char *what, double timeout, CommWork *work, Status *status) {
  pause_for(0.5); /* until it has been said where this rank is */
  if (!strcmp(what, "dies")) raise(SIGKILL);
  if (!strcmp(what, "stops")) raise(SIGSTOP);
  if (!strcmp(what, "sleeps")) pause_for(3600);
  if (!strcmp(what, "slow")) pause_for(timeout / 2);
  if (!strcmp(what, "exits")) _exit(0);
  if (!strcmp(what, "other")) work->count--;
  *status = STATUS_OK;
  if (!strcmp(what, "leaves")) return true;
  if (strcmp(what, "fails")) return false;
  *status = status_fail(STATUS_USER, "images.idx: no such file");
  return true;
}

static Status do_faults(Comm *comm, const char *what, double timeout) {
  enum { COUNT = 1000, ROUNDS = 12, AT = 5 };
  static float x[COUNT];
  static int whose = 1;
  if (!strncmp(what, "zero-", 5)) what += 5, whose = 0;
  CommWork work = {.dtype = DT_F32, .count = COUNT, .x = x, .out = x, .label = "gradients of h.3"};
  static const CommDoing doing = {.what = "round of faults"};
  comm_doing(comm, &doing);
  for (int round = 0; round < ROUNDS; round++) {
    Status status;
    comm_at_step(comm, round + 1);
    if (round == AT && comm_rank(comm) == whose && strike(what, timeout, &work, &status))
      return status;
    STATUS_TRY(comm_do(comm, &work));
  }
  if (comm_rank(comm) == 0) printf("all rounds\n");
  return STATUS_OK;
}

/* ── speed ────────────────────────────────────────────────────────────────────────────────── */
static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static Status do_speed(Comm *comm, int64_t count, int times) {
  char *memory = comm_memory_new(comm, count * (int64_t)sizeof(float)); /* as trainings have it */
  float *x = memory ? (float *)(void *)memory : calloc((size_t)count, sizeof *x);
  double *took = calloc((size_t)times, sizeof *took);
  CommWork work = {.dtype = DT_F32,
                   .count = count,
                   .x = x,
                   .out = x,
                   .is_shared = memory != NULL,
                   .label = "speed"};
  for (int i = 0; i < times; i++) {
    STATUS_TRY(comm_barrier(comm, "before"));
    int64_t start = clock_nanoseconds();
    STATUS_TRY(comm_do(comm, &work));
    took[i] = (double)(clock_nanoseconds() - start);
  }
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  qsort(took, (size_t)times, sizeof *took, compare);
  if (comm_rank(comm) == 0)
    printf("%lld f32: median %.1f us, p90 %.1f us; cpu %.2f s\n", (long long)count,
           took[times / 2] / 1e3, took[times * 9 / 10] / 1e3,
           (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec +
               1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec));
  return STATUS_OK;
}

/* ── stages ───────────────────────────────────────────────────────────────────────────────── */
enum { OF_MESSAGE = 9000 }; /* more than a socket takes at once, in all */
typedef struct {
  float *x;
  int64_t number;
} Sent;

static Status begin_message(Comm *comm, Sent *message, CommKind kind, const char *label) {
  CommWork work = {.kind = kind, .over = MESH_PIPELINE, .dtype = DT_F32, .count = OF_MESSAGE,
                   .peer = 1 - comm_index(comm, MESH_PIPELINE), .x = message->x,
                   .out = message->x, .label = label};
  return comm_begin(comm, &work, &message->number);
}

static Status reduce(Comm *comm, MeshAxis over, float *x, const char *label) {
  return comm_do(comm, &(CommWork){.over = over, .dtype = DT_F32, .count = 1, .x = x, .out = x,
                                   .label = label});
}

/* All receives are begun before the first send: what comes back of message i is i and the stage's
 * ranks. The stages' collectives over the pipeline stand elsewhere in each. */
static Status first_stage(Comm *comm, Sent *to, Sent *back, int count, float *loss) {
  int64_t number;
  CommWork all = {.kind = COMM_BROADCAST, .over = MESH_PIPELINE, .peer = 1, .dtype = DT_F32,
                  .count = 1, .x = loss, .out = loss, .label = "the loss"};
  STATUS_TRY(comm_begin(comm, &all, &number));
  for (int i = 0; i < count; i++) STATUS_TRY(begin_message(comm, &back[i], COMM_RECEIVE, "back"));
  for (int i = 0; i < count; i++) STATUS_TRY(begin_message(comm, &to[i], COMM_SEND, "there"));
  for (int i = 0; i < count; i++) STATUS_TRY(comm_end(comm, to[i].number));
  for (int i = 0; i < count; i++) STATUS_TRY(comm_end(comm, back[i].number));
  float ranks = 1;
  STATUS_TRY(reduce(comm, MESH_STAGE, &ranks, "ranks of the first stage"));
  return comm_end(comm, number);
}

static Status second_stage(Comm *comm, Sent *there, Sent *back, int count, float *loss) {
  for (int i = 0; i < count; i++) {
    float ranks = 1;
    STATUS_TRY(begin_message(comm, &there[i], COMM_RECEIVE, "there"));
    STATUS_TRY(comm_end(comm, there[i].number));
    STATUS_TRY(reduce(comm, MESH_STAGE, &ranks, "ranks of the second stage"));
    for (int k = 0; k < OF_MESSAGE; k++) back[i].x[k] = there[i].x[k] + ranks;
    STATUS_TRY(begin_message(comm, &back[i], COMM_SEND, "back"));
  }
  CommWork all = {.kind = COMM_BROADCAST, .over = MESH_PIPELINE, .peer = 1, .dtype = DT_F32,
                  .count = 1, .x = loss, .out = loss, .label = "the loss of the last stage"};
  *loss = 42;
  STATUS_TRY(comm_do(comm, &all));
  for (int i = 0; i < count; i++) STATUS_TRY(comm_end(comm, back[i].number));
  return STATUS_OK;
}

static Status do_stages(Comm *comm, int count) {
  int stage = comm_index(comm, MESH_PIPELINE), wrong = 0;
  Sent *there = calloc((size_t)count, sizeof *there), *back = calloc((size_t)count, sizeof *back);
  float loss = 0;
  for (int i = 0; i < count; i++) {
    there[i].x = calloc(OF_MESSAGE, sizeof(float));
    back[i].x = calloc(OF_MESSAGE, sizeof(float));
    for (int k = 0; k < OF_MESSAGE && stage == 0; k++) there[i].x[k] = (float)(i + k);
  }
  STATUS_TRY((stage ? second_stage : first_stage)(comm, there, back, count, &loss));
  for (int i = 0; i < count; i++)
    for (int k = 0; k < OF_MESSAGE; k++)
      wrong += back[i].x[k] != (float)(i + k + comm_size(comm, MESH_STAGE));
  STATUS_TRY(comm_barrier(comm, "the end"));
  if (wrong || loss != 42)
    return status_fail(STATUS_USER, "%d numbers are wrong, and the loss is %g", wrong, loss);
  return STATUS_OK;
}

/* ── works of GPUs ────────────────────────────────────────────────────────────────────────── */
static const CudaDriver *driver;
static CudaStream stream;
#define GPU(call) STATUS_TRY(cuda_check(driver, driver->call, "%s", #call))

static Status do_on_gpu(Nccl *nccl, Comm *comm, const Case *c) {
  CudaAddress x, out, at;
  CommWork work = c->work;
  bool is_in_place = c->in_place && work.kind != COMM_ALL_TO_ALL; /* NCCL cannot */
  GPU(memory_alloc(&x, (size_t)c->x_bytes + 1));
  GPU(memory_alloc(&out, (size_t)c->out_bytes + 1));
  at = is_in_place ? out + (CudaAddress)((const char *)work.x - (const char *)work.out) : x;
  if (c->x_bytes) GPU(to_device(at, work.x, (size_t)c->x_bytes, stream));
  work.x = (const void *)(uintptr_t)at;
  work.out = (void *)(uintptr_t)out;
  if (comm_size(comm, work.over) > 1)
    STATUS_TRY(nccl_enqueue(nccl, &work, stream));
  else if (c->x_bytes && at != out)
    GPU(on_device(out, at, (size_t)c->x_bytes, stream));
  if (c->out_bytes) GPU(to_host(c->out, out, (size_t)c->out_bytes, stream));
  CudaResult ended = CUDA_ERROR_NOT_READY;
  while (ended == CUDA_ERROR_NOT_READY) ended = driver->stream_query(stream);
  STATUS_TRY(cuda_check(driver, ended, "cuStreamQuery"));
  GPU(memory_free(x));
  GPU(memory_free(out));
  return STATUS_OK;
}

static Status do_gpu_works(Comm *comm, const char *folder) {
  static Case cases[MOST];
  CudaDevice device;
  CudaContext context;
  Nccl *nccl = NULL;
  char path[512], line[128];
  int rank = comm_rank(comm);
  STATUS_TRY(cuda_driver_open(&driver));
  GPU(device_get(&device, comm_local_rank(comm)));
  GPU(context_retain(&context, device));
  GPU(context_set(context));
  GPU(stream_create(&stream, CUDA_STREAM_NON_BLOCKING));
  STATUS_TRY(nccl_join(comm, &nccl));
  snprintf(path, sizeof path, "%s/cases", folder);
  FILE *file = fopen(path, "r");
  for (int i = 0; file && fgets(line, sizeof line, file) && read_case(comm, line, &cases[i]); i++) {
    prepare(comm, &cases[i], folder, i);
    STATUS_TRY(do_on_gpu(nccl, comm, &cases[i]));
    transfer(folder, 'y', i, rank, cases[i].out, cases[i].out_bytes);
  }
  fclose(file);
  nccl_leave(nccl);
  nccl_free(nccl);
  GPU(stream_destroy(stream));
  GPU(context_release(device));
  return STATUS_OK;
}

int main(int count, char **argument) {
  if (count < 4) return 2;
  Comm *comm;
  bool is_fault = !strcmp(argument[1], "fault"), is_speed = !strcmp(argument[1], "speed");
  double timeout = is_fault ? atof(argument[3]) : 60;
  int64_t piece = count > 4 ? atoll(argument[4]) : 0;
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (!rank) rank = getenv("RANK");
  if (is_fault && !strcmp(argument[2], "absent") && rank && !strcmp(rank, "1")) pause_for(3600);
  if (count > 7) mesh = (Mesh){atoi(argument[5]), atoi(argument[6]), atoi(argument[7])};
  CommOptions options = {.timeout = timeout,
                         .piece = piece,
                         .mesh = mesh,
                         .is_apart = getenv("COMM_PROGRAM_APART") != NULL};
  Status status = comm_open(&options, &comm);
  if (status != STATUS_OK) return ended(NULL, status);
  if (!mesh.data) mesh = (Mesh){comm_ranks(comm), 1, 1};
  if (comm_rank(comm) == 0) printf("%s\n", comm_text(comm));
  fflush(stdout);
  if (is_fault)
    status = do_faults(comm, argument[2], timeout);
  else if (!strcmp(argument[1], "gpu"))
    status = do_gpu_works(comm, argument[2]);
  else if (!strcmp(argument[1], "stages"))
    status = do_stages(comm, atoi(argument[2]));
  else if (is_speed)
    status = do_speed(comm, atoll(argument[2]), atoi(argument[3]));
  else
    status = do_works(comm, argument[2], (unsigned)atoi(argument[3]));
  fflush(stdout);
  return ended(comm, status);
}
