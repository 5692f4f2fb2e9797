/* cuda_log: what the driver's compiler says of the kernels that it has compiled (its info log, as
 * ptxas -v writes it), as far as it makes them slow. The text is taken for hostile. */
#ifndef FT_RUNTIME_CUDA_LOG_H
#define FT_RUNTIME_CUDA_LOG_H
#include <stddef.h>

enum { CUDA_LOG_KERNEL = 160, CUDA_LOG_WORDS = 320 };
typedef struct {
  char kernel[CUDA_LOG_KERNEL]; /* "": it names none. Both are printable, and cut where too long */
  char words[CUDA_LOG_WORDS];
} CudaLogRemark;

/* Fills up to `most` remarks in the log's order, one for each kernel and thing, and returns how many
 * there are. A log ends at `size` bytes, or at a zero before. */
int cuda_log_read(const char *log, size_t size, CudaLogRemark *out, int most);
/* The same as warnings about the artifact `path`. */
void cuda_log_warn(const char *path, const char *log, size_t size);
#endif
