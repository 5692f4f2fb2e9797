/* sim_ptxas: how many registers ptxas gives each kernel, if there is a ptxas in PATH: the only tool
 * that knows. Its words with -v are read from a pipe; without it the caller estimates. */
#define _GNU_SOURCE /* pipe2 */
#include "runtime/device/sim/sim_ptxas.h"
#include "base/text.h"
#include <errno.h>
#include <stdio.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs ptxas; its standard error, empty if it cannot run or fails. */
static void run_ptxas(const char *path, const char *arch, Text *out) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  pid_t child = fork();
  if (child == 0) {
    char option[64];
    snprintf(option, sizeof option, "-arch=%s", arch);
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    execlp("ptxas", "ptxas", "-v", option, path, "-o", "/dev/null", (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  char part[4096];
  ssize_t got;
  while (child > 0 && ((got = read(ends[0], part, sizeof part)) > 0 || (got < 0 && errno == EINTR)))
    if (got > 0) text_append(out, part, (size_t)got);
  close(ends[0]);
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (child < 0 || status != 0) out->count = 0;
}

/* ptxas info : Compiling entry function 'k0' for 'sm_80' … ptxas info : Used 18 registers, … */
int sim_ptxas_registers(const SimPtxas *report, const char *kernel) {
  if (!report->text.count) return 0;
  Text wanted = {0};
  text_printf(&wanted, "entry function '%s'", kernel);
  const char *at = strstr(text_cstr(&report->text), text_cstr(&wanted));
  text_free(&wanted);
  const char *used = at ? strstr(at, "Used ") : NULL;
  return used ? atoi(used + 5) : 0;
}

void sim_ptxas_run(SimPtxas *report, const char *path, const char *arch) {
  if (report->has_run) return;
  report->has_run = true;
  run_ptxas(path, arch, &report->text);
}

void sim_ptxas_free(SimPtxas *report) { text_free(&report->text); }
