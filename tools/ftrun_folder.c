/* ftrun_folder: see ftrun_folder.h. A folder whose run lives is locked (flock, on the folder
 * itself): the system lets go of it when the run and its compiler have ended, however they ended.
 * So a folder of ours that can be locked is not in use, and a number that another process got
 * later, or another container's, does not matter. */
#define _GNU_SOURCE /* mkdtemp, O_DIRECTORY */
#include "tools/ftrun_folder.h"
#include "base/say.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "ftrun-XXXXXX"
enum { ATTEMPTS = 16 };

static struct {
  char *path, *artifact, *second, *tuning; /* tuning: what cuda remembers of the libraries' speed */
} folder;

static void remove_folder(void) { /* only what a signal handler may call */
  unlink(folder.artifact);
  unlink(folder.second);
  unlink(folder.tuning);
  rmdir(folder.path);
}

static void die_of(int number) {
  remove_folder();
  signal(number, SIG_DFL);
  raise(number);
}

/* Those that end a process; in a training most of them are asked for (runtime/common/signals.h). */
static void catch_signals(void (*handler)(int)) {
  static const int numbers[] = {SIGPIPE, SIGHUP, SIGINT, SIGTERM, SIGUSR1};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (signal(numbers[i], handler) == SIG_IGN) signal(numbers[i], SIG_IGN); /* nohup */
}

static char *folder_joined(const char *left, const char *right) {
  Text path = {0};
  text_printf(&path, "%s%s", left, right);
  return path.at;
}

/* ── what killed runs have left ───────────────────────────────────────────────────────────── */
static bool is_name(const char *name) {
  return strlen(name) == strlen(NAME) && !strncmp(name, NAME, strcspn(NAME, "X"));
}

/* The files in an open folder; no folder in it is entered. */
static void remove_files(int at) {
  DIR *list = fdopendir(dup(at));
  if (!list) return;
  for (struct dirent *entry; (entry = readdir(list));)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      unlinkat(at, entry->d_name, 0);
  closedir(list);
}

static void sweep_one(int parent, const char *name) {
  struct stat info;
  int at = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (at < 0) return;
  bool is_ours = fstat(at, &info) == 0 && info.st_uid == geteuid() && !(info.st_mode & 077);
  if (is_ours && flock(at, LOCK_EX | LOCK_NB) == 0) {
    remove_files(at);
    unlinkat(parent, name, AT_REMOVEDIR);
  }
  close(at);
}

static void sweep(const char *parent) {
  int at = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = at < 0 ? NULL : fdopendir(dup(at));
  for (struct dirent *entry; list && (entry = readdir(list));)
    if (is_name(entry->d_name)) sweep_one(at, entry->d_name);
  if (list) closedir(list);
  if (at >= 0) close(at);
}

/* ── ours ─────────────────────────────────────────────────────────────────────────────────── */
/* Locks the new folder, for as long as this process and the compiler that it starts live. False if
 * another run has swept the folder away before. Where files cannot be locked, no run can sweep
 * either. */
static bool hold(const char *path) {
  struct stat info;
  int at = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (at < 0) return false;
  while (flock(at, LOCK_EX) != 0 && errno == EINTR) {
  }
  if (fstat(at, &info) == 0 && info.st_nlink > 0 && access(path, F_OK) == 0) return true;
  close(at);
  return false;
}

static bool folder_make(const char *parent) {
  for (int i = 0; i < ATTEMPTS; i++) {
    folder.path = folder_joined(parent, "/" NAME);
    if (!mkdtemp(folder.path)) break;
    if (hold(folder.path)) return true;
    free(folder.path);
    folder.path = NULL;
  }
  return false;
}

int folder_open(bool is_ptx, const char **artifact) {
  const char *chosen = getenv("TMPDIR"), *parent = chosen && chosen[0] ? chosen : "/tmp";
  sigset_t all, before;
  sweep(parent);
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before); /* until the folder would be removed */
  bool is_made = folder_make(parent);
  int error = errno;
  if (!is_made) {
    sigprocmask(SIG_SETMASK, &before, NULL);
    say_error("cannot make a folder for the compiled model: %s/%s: %s", parent, NAME,
              strerror(error));
    free(folder.path);
    return text_is_fault(error) ? 3 : 1;
  }
  folder.artifact = folder_joined(folder.path, is_ptx ? "/model.ptx" : "/model.so");
  folder.second = folder_joined(folder.path, is_ptx ? "/second.ptx" : "/second.so");
  folder.tuning = folder_joined(folder.artifact, ".tune");
  catch_signals(die_of);
  sigprocmask(SIG_SETMASK, &before, NULL);
  *artifact = folder.artifact;
  return 0;
}

const char *folder_second(void) { return folder.second; }

void folder_leave(void) {
  int at = folder.path ? open(folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  if (at >= 0) remove_files(at); /* the compiler's too, which ends */
  if (at >= 0) close(at);
  if (folder.path) rmdir(folder.path);
}

void folder_close(void) {
  remove_folder();
  catch_signals(SIG_DFL);
  free(folder.path);
  free(folder.artifact);
  free(folder.second);
  free(folder.tuning);
}
