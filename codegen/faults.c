/* faults: LLVM without memory, or at a place where it gives up, ends the program: with a sentence
 * and the machine's exit code, not by a signal. Both handlers are C++ functions that LLVM's C
 * interface lacks; they are looked up by name, so that a library without them is no error. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "codegen/codegen.h"
#include <dlfcn.h>
#include <llvm-c/ErrorHandling.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_MACHINE = 3 };

/* No stdio: there may be no memory for it. */
static void end(const char *what, const char *reason) {
  const char *parts[] = {"error: ", what, reason, "\n"};
  for (int i = 0; i < 4; i++)
    if (write(STDERR_FILENO, parts[i], strlen(parts[i])) < 0) break;
  text_remove_temporaries(false);
  _exit(EXIT_MACHINE);
}

static void on_bad_alloc(void *user, const char *reason, bool wants_trace) {
  (void)user;
  (void)reason;
  (void)wants_trace;
  end("out of memory", "");
}
static void on_new(void) { end("out of memory", ""); }
static void on_fatal(const char *reason) { end("LLVM cannot compile this: ", reason); }

void codegen_handle_faults(void) {
  static bool is_done;
  if (is_done) return;
  is_done = true;
  union { /* ISO C has no cast between the two; POSIX says that this works */
    void *data;
    void (*bad_alloc)(void (*)(void *, const char *, bool), void *);
    void (*(*new_handler)(void (*)(void)))(void);
  } install;
  install.data = dlsym(RTLD_DEFAULT, "_ZN4llvm31install_bad_alloc_error_handlerEPFvPvPKcbES0_");
  if (install.data) install.bad_alloc(on_bad_alloc, NULL);
  install.data = dlsym(RTLD_DEFAULT, "_ZSt15set_new_handlerPFvvE");
  if (install.data) (void)install.new_handler(on_new);
  LLVMInstallFatalErrorHandler(on_fatal);
}
