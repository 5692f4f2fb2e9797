/* cuda_tune: our own launches against the library's proposals, timed once for each product on this
 * GPU with this library, and remembered in a text file beside the artifact (model.ptx.tune). A file
 * of another GPU, driver or library is not used and is replaced. Timing works on random numbers
 * (zeros would be faster than real data) in memory that is cleared again afterwards. */
#include "runtime/device/cuda/cuda_blas.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 16, ROUNDS = 5, KEY = 200 * INSTEAD_CALLS, PIECE = 1 << 20 };

typedef struct {
  char key[KEY];
  int calls; /* of the library; 0: our own launches */
  CudaBlasAlgorithm algorithm[INSTEAD_CALLS];
} Row;

struct CudaTune {
  char *path;
  char head[256];
  VEC(Row) rows;
  Arena *arena;
  bool is_new; /* something to write */
  unsigned random;
};

/* ── the file ─────────────────────────────────────────────────────────────────────────────── */
/* "matmul ... = own" or "matmul ... = library <128 digits>", and as many digits for each call. */
static bool read_row(CudaTune *tune, const char *line) {
  Row row = {0};
  const char *mark = strstr(line, " = ");
  if (!mark || (size_t)(mark - line) >= sizeof row.key) return false;
  memcpy(row.key, line, (size_t)(mark - line));
  const char *at = mark + 3;
  if (strncmp(at, "library ", 8) == 0) {
    for (at += 8; *at; row.calls++, at += *at == ' ') {
      if (row.calls == INSTEAD_CALLS || strspn(at, "0123456789abcdef") != 128) return false;
      for (int i = 0; i < 8; i++, at += 16) {
        char digits[17] = "";
        memcpy(digits, at, 16);
        row.algorithm[row.calls].data[i] = strtoull(digits, NULL, 16);
      }
    }
    if (!row.calls) return false;
  } else if (strcmp(at, "own") != 0) {
    return false;
  }
  VEC_PUSH(tune->arena, tune->rows, row);
  return true;
}

/* What cannot be used is timed again and written anew; a word about it is enough. */
static void read_file(CudaTune *tune) {
  Text text = {0};
  int damaged = 0;
  if (text_read_file(&text, tune->path) == 0) {
    char *rest = NULL, *line = strtok_r((char *)text_cstr(&text), "\n", &rest);
    if (!line || strncmp(line, "ft-tune ", 8) != 0) {
      fprintf(stderr, "note: %s is damaged: products are timed again\n", tune->path);
    } else if (strcmp(line, tune->head) != 0) {
      fprintf(stderr, "note: %s is of another GPU, driver or library: products are timed again\n",
              tune->path);
    } else {
      while ((line = strtok_r(NULL, "\n", &rest))) damaged += !read_row(tune, line);
      if (damaged)
        fprintf(stderr, "note: %s is damaged in %d line%s: those products are timed again\n",
                tune->path, damaged, damaged == 1 ? "" : "s");
    }
  }
  text_free(&text);
}

static void write_file(const CudaTune *tune) {
  Text text = {0}, beside = {0};
  text_printf(&text, "%s\n", tune->head);
  for (int i = 0; i < tune->rows.count; i++) {
    const Row *row = &tune->rows.at[i];
    text_printf(&text, "%s = %s", row->key, row->calls ? "library" : "own");
    for (int k = 0; k < 8 * row->calls; k++)
      text_printf(&text, "%s%016llx", k % 8 ? "" : " ",
                  (unsigned long long)row->algorithm[k / 8].data[k % 8]);
    text_printf(&text, "\n");
  }
  text_printf(&beside, "%s.new", tune->path);
  if (text_write_file(text_cstr(&beside), text.at, text.count) == 0)
    if (rename(text_cstr(&beside), tune->path) != 0) remove(text_cstr(&beside));
  text_free(&text);
  text_free(&beside);
}

Status cuda_tune_open(Device *device) {
  Arena *arena = arena_new();
  CudaTune *tune = ARENA_NEW(arena, CudaTune);
  tune->arena = arena;
  tune->random = 1;
  tune->path = arena_printf(arena, "%s.tune", device->artifact->path);
  snprintf(tune->head, sizeof tune->head, "ft-tune 1 cublaslt %zu cuda %d %s",
           device->blas->version, device->driver->version, device->text);
  read_file(tune);
  device->blas->tune = tune;
  return STATUS_OK;
}

void cuda_tune_close(Device *device) {
  CudaTune *tune = device->blas->tune;
  if (tune->is_new) write_file(tune);
  arena_free(tune->arena);
}

/* ── keys ─────────────────────────────────────────────────────────────────────────────────── */
static void make_key(const DeviceGraph *graph, const PlanInstead *instead, char *key) {
  Text text = {0};
  for (int k = 0; k < instead->call_count; k++) {
    const PlanStep *step = &instead->call[k];
    text_printf(&text, "%s%s", k ? " also " : "", step->name);
    for (int i = 0; i < step->int_count; i++)
      text_printf(&text, " %s=%lld", step->ints[i].key, (long long)step->ints[i].value);
    for (int i = 0; i < step->arg_count; i++)
      text_printf(&text, " %s", dtype_text(graph->plan->buffers.at[step->args[i]].type.dtype));
  }
  snprintf(key, KEY, "%s", text_cstr(&text));
  text_free(&text);
}

static Row *find_row(const CudaTune *tune, const char *key) {
  for (int i = 0; i < tune->rows.count; i++)
    if (strcmp(tune->rows.at[i].key, key) == 0) return &tune->rows.at[i];
  return NULL;
}

/* ── timing ───────────────────────────────────────────────────────────────────────────────── */
static uint16_t random_half(unsigned bits, DType dtype) { /* in [1, 2) */
  return dtype == DT_F16 ? (uint16_t)(0x3c00 | (bits & 0x3ff)) : (uint16_t)(0x3f80 | (bits & 0x7f));
}

static Status fill_random(DeviceGraph *graph, int buffer) {
  Device *device = graph->device;
  CudaTune *tune = device->blas->tune;
  const Type *type = &graph->plan->buffers.at[buffer].type;
  int64_t bytes = type_bytes(type), size = dtype_bytes(type->dtype);
  char *piece = malloc(PIECE);
  if (!piece) return status_fail(STATUS_FAULT, "out of memory");
  for (int64_t i = 0; i < PIECE / size; i++) {
    tune->random = tune->random * 1664525u + 1013904223u;
    if (type->dtype == DT_F32) ((float *)piece)[i] = (float)(tune->random >> 8) * 0x1p-23f - 1;
    if (size == 2) ((uint16_t *)piece)[i] = random_half(tune->random >> 16, type->dtype);
    if (size == 1) piece[i] = (char)(tune->random >> 24);
  }
  CudaAddress at = cuda_graph_address(graph, buffer, 0);
  CudaResult result = CUDA_SUCCESS;
  for (int64_t done = 0; done < bytes && result == CUDA_SUCCESS; done += PIECE)
    result = device->driver->to_device(at + (uint64_t)done, piece,
                                       (size_t)(bytes - done < PIECE ? bytes - done : PIECE),
                                       device->compute);
  free(piece);
  STATUS_TRY(cuda_say(device, result, "numbers for timing"));
  return cuda_wait_stream(device, device->compute, "numbers for timing");
}

typedef struct {
  DeviceGraph *graph;
  const CudaItem *item;
  int count;
} Timed;

static Status enqueue(void *context, CudaStream stream) {
  Timed *timed = context;
  for (int i = 0; i < timed->count; i++)
    STATUS_TRY(cuda_graph_enqueue(timed->graph, &timed->item[i], 0, stream));
  return STATUS_OK;
}

static Status cuda_tune_time_items(DeviceGraph *graph, const CudaItem *item, int count,
                                   double *microseconds) {
  Timed timed = {graph, item, count};
  /* once before it is captured: the library loads its code at the first call */
  STATUS_TRY(enqueue(&timed, graph->device->compute));
  STATUS_TRY(cuda_wait_stream(graph->device, graph->device->compute, "timing a product"));
  return cuda_time(graph->device, enqueue, &timed, REPEATS, ROUNDS, microseconds);
}

/* The fastest proposal for one call; -1: none of them runs. */
static Status time_proposals(DeviceGraph *graph, CudaOffer *offer, int which, double *best) {
  CudaItem item = {.call = offer->call[which]};
  offer->chosen[which] = -1;
  for (int i = 0; i < offer->found_count[which]; i++) {
    double time;
    item.call->algorithm = offer->found[which][i].algorithm;
    /* a proposal that fails, or cannot be captured, is passed over; a lost GPU fails the rest too
     */
    if (cuda_tune_time_items(graph, &item, 1, &time) != STATUS_OK) continue;
    if (offer->chosen[which] >= 0 && time >= *best) continue;
    *best = time;
    offer->chosen[which] = i;
  }
  return STATUS_OK;
}

static Status time_all(DeviceGraph *graph, CudaOffer *offer, const CudaItem *own, int own_count) {
  double by_own, by_library = 0, time = 0;
  STATUS_TRY(cuda_tune_time_items(graph, own, own_count, &by_own));
  for (int i = 0; i < offer->instead->call_count; i++) {
    STATUS_TRY(time_proposals(graph, offer, i, &time));
    if (offer->chosen[i] < 0) return STATUS_OK;
    by_library += time;
  }
  for (int i = 0; i < offer->instead->call_count && by_library >= by_own; i++)
    offer->chosen[i] = -1;
  return STATUS_OK;
}

static Status clear(DeviceGraph *graph, const PlanStep *step) {
  Device *device = graph->device;
  for (int i = 0; i < step->arg_count; i++) {
    int64_t bytes = type_bytes(&graph->plan->buffers.at[step->args[i]].type);
    if (bytes)
      CUDA_TRY(device,
               fill(cuda_graph_address(graph, step->args[i], 0), 0, (size_t)bytes, device->compute),
               "clearing memory");
  }
  return cuda_wait_stream(device, device->compute, "timing products");
}

static Status fill_inputs(DeviceGraph *graph, const PlanStep *step) {
  for (int i = 0; i < step->input_count; i++) STATUS_TRY(fill_random(graph, step->args[i]));
  return STATUS_OK;
}

/* False if a proposal that the row names is not made any more. */
static bool take_known(const Row *known, CudaOffer *offer) {
  for (int k = 0; k < offer->instead->call_count; k++) {
    offer->chosen[k] = -1;
    for (int i = 0; i < offer->found_count[k] && known->calls; i++)
      if (!memcmp(&known->algorithm[k], &offer->found[k][i].algorithm, sizeof *known->algorithm))
        offer->chosen[k] = i;
    if (known->calls && offer->chosen[k] < 0) return false;
  }
  return true;
}

Status cuda_tune_choose(DeviceGraph *graph, CudaOffer *offer, const CudaItem *own, int own_count) {
  CudaTune *tune = graph->device->blas->tune;
  const PlanInstead *instead = offer->instead;
  const PlanStep *steps = graph->plan->steps.at;
  Row row = {0};
  make_key(graph, instead, row.key);
  Row *known = find_row(tune, row.key);
  if (known && take_known(known, offer)) return STATUS_OK;
  for (int i = instead->first; i < instead->end; i++) STATUS_TRY(fill_inputs(graph, &steps[i]));
  for (int i = 0; i < instead->call_count; i++) STATUS_TRY(fill_inputs(graph, &instead->call[i]));
  STATUS_TRY(time_all(graph, offer, own, own_count));
  for (int i = instead->first; i < instead->end; i++) STATUS_TRY(clear(graph, &steps[i]));
  for (int i = 0; i < instead->call_count; i++) STATUS_TRY(clear(graph, &instead->call[i]));
  row.calls = instead->call_count;
  for (int i = 0; i < instead->call_count; i++) {
    if (offer->chosen[i] < 0) row.calls = 0;
    if (row.calls) row.algorithm[i] = offer->found[i][offer->chosen[i]].algorithm;
  }
  if (known)
    *known = row; /* what it named is not proposed any more */
  else
    VEC_PUSH(tune->arena, tune->rows, row);
  tune->is_new = true;
  return STATUS_OK;
}
