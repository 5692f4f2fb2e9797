/* shim: preloaded into ftc and ftrun by test/e2e/faults.py; makes one call of one kind fail, or all
 * from that one on. FT_FAULT_KIND: which calls; FT_FAULT_AT: the how-manieth, from 1; 0: none;
 * FT_FAULT_LASTING: those after it too; FT_FAULT_HANGS: it does not return at all; FT_FAULT_SLOW:
 * it takes so many milliseconds, and does not fail; FT_FAULT_COUNT: a file that gets the number of calls.
 * Only calls from the program itself, the C library and the libraries that report a failure to us
 * count (allocations of the dynamic linker or of OpenBLAS are theirs); FT_FAULT_CALLERS=c++ counts
 * those of LLVM and libstdc++ instead. Counting begins with main. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_RANGES = 64 };
static struct {
  uintptr_t start, end;
} ranges[MOST_RANGES];
static int range_count;
static atomic_bool is_armed;
static atomic_long calls;
static long fail_at;
static bool is_lasting, hangs;
static long slow;
static char kind[32];
static pid_t counted_process;

static bool counts(const char *library) {
  static const char *const ours[] = {"libc.so", "libjansson", "libpcre2", "libz.so"};
  static const char *const others[] = {"libLLVM", "libstdc++"};
  const char *callers = getenv("FT_FAULT_CALLERS");
  if (callers && strcmp(callers, "c++") == 0) {
    for (int i = 0; i < 2; i++)
      if (strstr(library, others[i])) return true;
    return false;
  }
  if (!library[0]) return true; /* the program */
  for (int i = 0; i < 4; i++)
    if (strstr(library, ours[i])) return true;
  return false;
}

static int add_ranges(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  (void)data;
  for (int i = 0; counts(info->dlpi_name) && i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || !(part->p_flags & PF_X) || range_count == MOST_RANGES) continue;
    ranges[range_count].start = info->dlpi_addr + part->p_vaddr;
    ranges[range_count++].end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
  }
  return 0;
}

static bool fails(const char *which, const void *caller) {
  if (!atomic_load(&is_armed) || strcmp(which, kind) != 0) return false;
  bool is_ours = false;
  for (int i = 0; i < range_count && !is_ours; i++)
    is_ours = (uintptr_t)caller >= ranges[i].start && (uintptr_t)caller < ranges[i].end;
  if (!is_ours || getpid() != counted_process) return false;
  long number = atomic_fetch_add(&calls, 1) + 1;
  bool is_it = number == fail_at || (is_lasting && fail_at && number > fail_at);
  while (is_it && hangs) pause();
  if (is_it && slow) usleep((useconds_t)slow * 1000);
  return is_it && !slow;
}

static void report(void) {
  const char *path = getenv("FT_FAULT_COUNT");
  char text[32];
  if (!path || getpid() != counted_process) return;
  atomic_store(&is_armed, false);
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  int length = snprintf(text, sizeof text, "%ld\n", atomic_load(&calls));
  syscall(SYS_write, fd, text, (size_t)length);
  syscall(SYS_close, fd);
}

static int (*real_main)(int, char **, char **);
static int armed_main(int count, char **arguments, char **environment) {
  const char *at = getenv("FT_FAULT_AT"), *which = getenv("FT_FAULT_KIND");
  fail_at = at ? strtol(at, NULL, 10) : 0;
  is_lasting = getenv("FT_FAULT_LASTING") != NULL;
  hangs = getenv("FT_FAULT_HANGS") != NULL;
  if (getenv("FT_FAULT_SLOW")) slow = strtol(getenv("FT_FAULT_SLOW"), NULL, 10);
  snprintf(kind, sizeof kind, "%s", which ? which : "");
  dl_iterate_phdr(add_ranges, NULL);
  counted_process = getpid();
  unsetenv("LD_PRELOAD"); /* not in ld, and not in the compiler that ftrun starts */
  atexit(report);
  atomic_store(&is_armed, true);
  return real_main(count, arguments, environment);
}

int __libc_start_main(int (*main)(int, char **, char **), int count, char **arguments,
                      void (*init)(void), void (*fini)(void), void (*end)(void), void *stack) {
  int (*real)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void),
              void (*)(void), void *) = dlsym(RTLD_NEXT, "__libc_start_main");
  real_main = main;
  return real(armed_main, count, arguments, init, fini, end, stack);
}

#define FAILS(which) fails(which, __builtin_return_address(0))
#define FAIL(which, error, value)                                                                  \
  if (FAILS(which)) {                                                                              \
    errno = error;                                                                                 \
    return value;                                                                                  \
  }
#define REAL(result, name, ...)                                                                    \
  static result (*real)(__VA_ARGS__);                                                              \
  if (!real) real = dlsym(RTLD_NEXT, name)

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
void *malloc(size_t bytes) {
  FAIL("malloc", ENOMEM, NULL)
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  FAIL("malloc", ENOMEM, NULL)
  return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) {
  FAIL("malloc", ENOMEM, NULL)
  return __libc_realloc(old, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  FAIL("malloc", ENOMEM, NULL)
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **out, size_t alignment, size_t bytes) {
  if (FAILS("malloc")) return ENOMEM;
  *out = __libc_memalign(alignment, bytes);
  return *out ? 0 : ENOMEM;
}
void *mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset) {
  FAIL("mmap", ENOMEM, MAP_FAILED)
  return (void *)syscall(SYS_mmap, at, bytes, access, flags, fd, offset);
}
int open(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  int mode = va_arg(more, int);
  va_end(more);
  FAIL("open", EMFILE, -1)
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
FILE *fopen(const char *path, const char *mode) {
  FAIL("open", EMFILE, NULL)
  REAL(FILE *, "fopen", const char *, const char *);
  return real(path, mode);
}
DIR *opendir(const char *path) {
  FAIL("open", EMFILE, NULL)
  REAL(DIR *, "opendir", const char *);
  return real(path);
}
int mkdir(const char *path, mode_t mode) {
  FAIL("mkdir", ENOSPC, -1)
  return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}
ssize_t read(int fd, void *to, size_t bytes) {
  FAIL("read", EIO, -1)
  return syscall(SYS_read, fd, to, bytes);
}
ssize_t pread(int fd, void *to, size_t bytes, off_t offset) {
  FAIL("read", EIO, -1)
  return syscall(SYS_pread64, fd, to, bytes, offset);
}
ssize_t write(int fd, const void *from, size_t bytes) {
  FAIL("write", ENOSPC, -1)
  return syscall(SYS_write, fd, from, bytes);
}
int fsync(int fd) {
  FAIL("fsync", EIO, -1)
  return (int)syscall(SYS_fsync, fd);
}
int rename(const char *from, const char *to) {
  FAIL("rename", EIO, -1)
  return (int)syscall(SYS_rename, from, to);
}
int pipe(int ends[2]) {
  FAIL("fork", EMFILE, -1)
  return (int)syscall(SYS_pipe2, ends, 0);
}
pid_t fork(void) {
  FAIL("fork", EAGAIN, -1)
  REAL(pid_t, "fork", void);
  return real();
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument) {
  if (FAILS("thread")) return EAGAIN;
  REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  return real(thread, attributes, start, argument);
}
