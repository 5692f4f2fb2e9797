/* cubin: see cubin.h. */
#include "codegen/cubin.h"
#include "codegen/artifact.h"
#include "plan/plan_cubin.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Into *out, which is empty if there is none. A folder of PATH that is empty or relative is passed over. */
static void find_ptxas(Text *out) {
  const char *path = getenv("PATH"), *home = getenv("CUDA_HOME");
  Text places = {0};
  text_printf(&places, "%s:%s/bin", path ? path : "", home && home[0] ? home : "/usr/local/cuda");
  char *rest = NULL;
  for (char *at = strtok_r(places.at, ":", &rest); at; at = strtok_r(NULL, ":", &rest)) {
    out->count = 0;
    text_printf(out, "%s/ptxas", at);
    if (at[0] == '/' && access(out->at, X_OK) == 0) break;
    text_free(out);
  }
  text_free(&places);
}

/* One line of what ptxas said. */
static void join_message(char *message) {
  size_t length = strlen(message);
  while (length && message[length - 1] == '\n') message[--length] = 0;
  for (char *at = message; *at; at++)
    if (*at == '\n') *at = ';';
  text_make_printable(message);
}

static bool assemble(Diag *diag, const char *ptxas, const char *target, const Text *in, const Text *out) {
  char message[2048] = "", arch[32];
  snprintf(arch, sizeof arch, "-arch=%s", target);
  const char *const arguments[] = {ptxas, arch, in->at, "-o", out->at, NULL};
  int status = artifact_run(arguments, message, sizeof message);
  join_message(message);
  if (status)
    diag_error(diag, (Loc){0}, "--cubin: %s does not compile the PTX for %s (status %d): %s; without --cubin the GPU's driver compiles it",
               ptxas, target, status, message);
  else if (message[0])
    diag_warning(diag, (Loc){0}, "--cubin: %s", message);
  return !status;
}

/* in, out: files beside the artifact, which the caller removes. */
static bool append_made(Diag *diag, const char *ptxas, const char *target, const char *path, Text *ptx, Text *in, Text *out) {
  int error = artifact_write_beside(path, ptx, in);
  if (!error) error = artifact_write_beside(path, &(Text){0}, out);
  if (error) return artifact_fail(diag, "write", path, error);
  if (!assemble(diag, ptxas, target, in, out)) return false;
  Text made = {0};
  error = text_read_file(&made, out->at);
  if (!error) plan_append_cubin(ptx, target, text_cstr(&made), made.count);
  text_free(&made);
  return !error || artifact_fail(diag, "read", out->at, error);
}

bool cubin_append(Diag *diag, const char *target, const char *path, Text *ptx) {
  Text ptxas = {0}, in = {0}, out = {0};
  find_ptxas(&ptxas);
  if (!ptxas.count) {
    diag_error(diag, (Loc){0}, "--cubin needs NVIDIA's ptxas (of a CUDA toolkit), which is neither in PATH nor in $CUDA_HOME/bin "
                               "(without CUDA_HOME: /usr/local/cuda/bin); without --cubin the GPU's driver compiles the PTX at the first start");
    text_free(&ptxas);
    return false;
  }
  bool good = append_made(diag, ptxas.at, target, path, ptx, &in, &out);
  if (in.count) unlink(in.at);
  if (out.count) unlink(out.at);
  text_free(&in);
  text_free(&out);
  text_free(&ptxas);
  return good;
}
