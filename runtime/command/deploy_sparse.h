/* deploy_sparse: which weights a GPU's sparse tensor cores can multiply by: matrices with at most two of each four neighbours of a row not 0. */
#ifndef FT_RUNTIME_DEPLOY_SPARSE_H
#define FT_RUNTIME_DEPLOY_SPARSE_H
#include "base/text.h"
#include "runtime/common/status.h"

/* Their names, behind a ? and with commas between them, for ftc --sparse, as the file may have others than the model; empty: there are none. `path`: as --weights takes it. */
STATUS_CHECKED Status deploy_sparse_names(const char *path, Text *out);
#endif
