/* cuda_module: the artifact's cubin, or else its PTX, becomes modules of the driver, compiled for the GPU at hand, those of PTX
 * side by side. What the GPU or the driver cannot do is said before or from the driver's own log, and so is what
 * makes a kernel slow. */
#include "base/say.h"
#include "runtime/device/cuda/cuda_log.h"
#include "runtime/device/cuda/cuda_private.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* INFO_BYTES: some 350 for each kernel. */
enum { LOG_BYTES = 8192, LOG_SHOWN = 700, INFO_BYTES = 256 << 10, OLDEST_GPU = 80 };

/* "sm_90a" -> 90 and whether only that very processor will do. */
static int parse_target(const char *text, bool *is_exact) {
  int number = 0;
  if (strncmp(text, "sm_", 3) != 0) return 0;
  for (text += 3; isdigit((unsigned char)*text) && number < 1000; text++)
    number = number * 10 + (*text - '0');
  *is_exact = *text == 'a' || *text == 'f';
  return number;
}

Status cuda_module_check(const Artifact *artifact, int major, int minor) {
  bool is_exact = false;
  int have = major * 10 + minor, want = parse_target(artifact->plan->target_cpu, &is_exact);
  if (!want || (is_exact ? have == want : have >= want)) return STATUS_OK;
  if (have < OLDEST_GPU)
    return status_fail(
        STATUS_USER,
        "%s is compiled for %s and the GPU here is sm_%d, too old: ft needs sm_%d or "
        "newer; simulate one with --device sim",
        artifact->path, artifact->plan->target_cpu, have, OLDEST_GPU);
  return status_fail(STATUS_USER,
                     "%s is compiled for %s and the GPU here is sm_%d; compile it without --gpu, "
                     "then it runs on all from sm_%d on: ftc %s -o %s",
                     artifact->path, artifact->plan->target_cpu, have, OLDEST_GPU,
                     artifact->plan->source, artifact->path);
}

/* The log's lines joined, so that an error stays one line. */
static void join_lines(char *log) {
  log[LOG_SHOWN] = 0;
  size_t length = strlen(log);
  while (length && isspace((unsigned char)log[length - 1])) log[--length] = 0;
  for (char *at = log; *at; at++)
    if (*at == '\n') *at = ';';
}

typedef struct {
  char error[LOG_BYTES], info[INFO_BYTES];
} Logs;

static CudaResult compile_module(const CudaDriver *driver, const char *image, Logs *logs,
                          CudaModule *out) {
  int options[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_BYTES, CUDA_JIT_INFO_LOG,
                   CUDA_JIT_INFO_LOG_BYTES, CUDA_JIT_LOG_VERBOSE};
  void *values[] = {logs->error, (void *)(uintptr_t)(LOG_BYTES - 1), logs->info,
                    (void *)(uintptr_t)INFO_BYTES, (void *)(uintptr_t)1};
  return driver->module_load(out, image, sizeof options / sizeof *options, options, values);
}

static Status say_result(const CudaDriver *driver, const char *path, CudaResult result,
                         const char *log) {
  if (result == CUDA_SUCCESS) return STATUS_OK;
  if (result == CUDA_ERROR_UNSUPPORTED_PTX)
    return status_fail(STATUS_USER,
                       "%s: the driver, for CUDA %d.%d, is too old for the PTX version of this "
                       "file (its .version line)%s%s; update the driver",
                       path, driver->version / 1000, driver->version % 1000 / 10,
                       log[0] ? ": " : "", log);
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return status_fail(STATUS_FAULT, "%s: the GPU has no memory left for the kernels", path);
  return status_fail(STATUS_USER, "%s: the driver cannot compile the PTX (%s): %s", path,
                     cuda_error_name(driver, result), log[0] ? log : "it gives no reason");
}

Status cuda_module_load(const CudaDriver *driver, const char *path, const char *ptx,
                        CudaModule *out) {
  Logs *logs = calloc(1, sizeof *logs);
  if (!logs) return status_fail(STATUS_FAULT, "out of memory");
  CudaResult result = compile_module(driver, ptx, logs, out);
  join_lines(logs->error);
  Status status = say_result(driver, path, result, logs->error);
  if (status == STATUS_OK) cuda_log_warn(path, logs->info, sizeof logs->info);
  free(logs);
  return status;
}

/* ── a text in pieces ───────────────────────────────────────────────────────────────────────── */
typedef struct {
  const CudaDriver *driver;
  CudaContext context;
  const char *text;
  Logs *logs; /* NULL: no memory for them */
  CudaModule module;
  CudaResult result;
  pthread_t thread;
  bool is_started;
} Piece;

static void *compile_one_piece(void *of) {
  Piece *piece = of;
  piece->result = piece->driver->context_set(piece->context);
  if (piece->result == CUDA_SUCCESS)
    piece->result = compile_module(piece->driver, piece->text, piece->logs, &piece->module);
  return NULL;
}

/* The first by this thread, which has the context, each other by a thread of its own. */
static bool compile_all_pieces(const CudaDriver *driver, Piece *piece, int count) {
  CudaContext context = NULL;
  if (driver->context_current(&context) != CUDA_SUCCESS) return false;
  bool is_whole = true;
  for (int i = 0; i < count; i++) {
    piece[i].driver = driver, piece[i].context = context;
    piece[i].logs = calloc(1, sizeof *piece[i].logs);
    if (!piece[i].logs) is_whole = false;
  }
  for (int i = 1; is_whole && i < count; i++)
    piece[i].is_started = pthread_create(&piece[i].thread, NULL, compile_one_piece, &piece[i]) == 0;
  for (int i = 0; is_whole && i < count; i++)
    if (!piece[i].is_started) compile_one_piece(&piece[i]);
  for (int i = 1; i < count; i++)
    if (piece[i].is_started) pthread_join(piece[i].thread, NULL);
  for (int i = 0; i < count; i++) is_whole = is_whole && piece[i].result == CUDA_SUCCESS;
  return is_whole;
}

/* What the driver says of all pieces, as if of one text. */
static void warn_of_pieces(const char *path, const Piece *piece, int count) {
  size_t used = 0;
  char *all = malloc((size_t)count * (INFO_BYTES + 1));
  if (!all) return;
  for (int i = 0; i < count; i++) {
    size_t length = strnlen(piece[i].logs->info, INFO_BYTES);
    memcpy(all + used, piece[i].logs->info, length);
    all[used + length] = '\n';
    used += length + 1;
  }
  cuda_log_warn(path, all, used);
  free(all);
}

/* False: there is one piece, or something is wrong with one of them, which the driver is to say of the whole text. */
static bool load_pieces(const CudaDriver *driver, const char *path, const char *ptx, CudaModules *out) {
  Arena *arena = arena_new();
  char *text[CUDA_PIECES];
  Piece piece[CUDA_PIECES] = {0};
  const char *wanted = getenv("FT_CUDA_MODULES");
  long most = wanted && *wanted ? strtol(wanted, NULL, 10) : CUDA_PIECES;
  most = most < 1 ? 1 : most > CUDA_PIECES ? CUDA_PIECES : most;
  int count = cuda_pieces_cut(arena, ptx, CUDA_PIECE_BYTES, (int)most, text);
  for (int i = 0; i < count; i++) piece[i].text = text[i];
  bool is_loaded = count > 0 && compile_all_pieces(driver, piece, count);
  if (is_loaded) warn_of_pieces(path, piece, count);
  for (int i = 0; i < count; i++) {
    if (is_loaded)
      out->at[out->count++] = piece[i].module;
    else if (piece[i].module)
      driver->module_unload(piece[i].module);
    free(piece[i].logs);
  }
  arena_free(arena);
  return is_loaded;
}

/* Has the artifact code for this GPU that the driver takes? What is wrong with it is said, and no
 * failure: the PTX serves as well. */
static bool load_cubin(const CudaDriver *driver, const Artifact *artifact, int major, int minor,
                       CudaModule *out) {
  const PlanCubin *cubin = &artifact->cubin;
  const char *wanted = getenv("FT_CUDA_CUBIN");
  if (!cubin->target || (wanted && !strcmp(wanted, "0"))) return false;
  if (cubin->problem) {
    say_warning("%s: its cubin is not used: %s; the driver compiles the PTX", artifact->path,
                cubin->problem);
    return false;
  }
  if (!plan_cubin_fits(cubin->target, major, minor)) return false;
  CudaResult result = driver->module_load(out, cubin->bytes, 0, NULL, NULL);
  if (result != CUDA_SUCCESS)
    say_warning("%s: the driver, for CUDA %d.%d, does not take its cubin (%s) and compiles the PTX",
                artifact->path, driver->version / 1000, driver->version % 1000 / 10,
                cuda_error_name(driver, result));
  return result == CUDA_SUCCESS;
}

Status cuda_modules_load(const CudaDriver *driver, const Artifact *artifact, int major, int minor, CudaModules *out,
                         bool *is_cubin) {
  *is_cubin = load_cubin(driver, artifact, major, minor, &out->at[0]);
  if (!*is_cubin && load_pieces(driver, artifact->path, artifact->ptx, out)) return STATUS_OK;
  if (!*is_cubin) STATUS_TRY(cuda_module_load(driver, artifact->path, artifact->ptx, &out->at[0]));
  out->count = 1;
  return STATUS_OK;
}

CudaResult cuda_modules_function(const CudaDriver *driver, const CudaModules *modules, const char *name,
                                 CudaFunction *out) {
  CudaResult result = CUDA_ERROR_NOT_FOUND;
  for (int i = 0; i < modules->count && result == CUDA_ERROR_NOT_FOUND; i++)
    result = driver->module_function(out, modules->at[i], name);
  return result;
}

void cuda_modules_unload(const CudaDriver *driver, CudaModules *modules) {
  while (modules->count) driver->module_unload(modules->at[--modules->count]);
}
