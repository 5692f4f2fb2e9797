/* ckpt_private: a file being written, as ckpt_file.c and ckpt_write.c share it. */
#ifndef FT_RUNTIME_CKPT_PRIVATE_H
#define FT_RUNTIME_CKPT_PRIVATE_H
#include "runtime/checkpoint/ckpt_file.h"
#include <stdatomic.h>

struct CkptFile {
  Exec *exec;
  Comm *comm; /* of those that write it; NULL: this process alone */
  Arena *arena;
  char *path;
  SafeLayout layout;
  SafeFile *file;
  CkptList list;
  CkptShares shares; /* of this rank */
  uint64_t sum;      /* of what it has written; after ckpt_file_settle, of all */
  atomic_bool is_given_up;
};
#endif
