/* dnnl_library: oneDNN, opened where a plan has a convolution or a matrix product that it makes. It is not linked: an artifact whose
 * kernels are all ft's own needs neither it (40 MB, with OpenCL and the C++ library) nor its time to start. */
#ifndef FT_RUNTIME_DNNL_LIBRARY_H
#define FT_RUNTIME_DNNL_LIBRARY_H
#include "runtime/common/status.h"
#include <oneapi/dnnl/dnnl.h>

/* The functions that are called. A new one is a row here. */
#define DNNL_ENTRIES(ENTRY)                                                                        \
  ENTRY(dilated_convolution_backward_data_desc_init)                                               \
  ENTRY(dilated_convolution_backward_weights_desc_init)                                            \
  ENTRY(dilated_convolution_forward_desc_init)                                                     \
  ENTRY(engine_create)                                                                             \
  ENTRY(engine_destroy)                                                                            \
  ENTRY(matmul_desc_init)                                                                          \
  ENTRY(memory_create)                                                                             \
  ENTRY(memory_desc_equal)                                                                         \
  ENTRY(memory_desc_get_size)                                                                      \
  ENTRY(memory_desc_init_by_strides)                                                               \
  ENTRY(memory_desc_init_by_tag)                                                                   \
  ENTRY(memory_destroy)                                                                            \
  ENTRY(memory_set_data_handle)                                                                    \
  ENTRY(post_ops_append_eltwise)                                                                   \
  ENTRY(post_ops_create)                                                                           \
  ENTRY(post_ops_destroy)                                                                          \
  ENTRY(primitive_attr_create)                                                                     \
  ENTRY(primitive_attr_destroy)                                                                    \
  ENTRY(primitive_attr_set_post_ops)                                                               \
  ENTRY(primitive_attr_set_scratchpad_mode)                                                        \
  ENTRY(primitive_create)                                                                          \
  ENTRY(primitive_desc_create)                                                                     \
  ENTRY(primitive_desc_destroy)                                                                    \
  ENTRY(primitive_desc_query)                                                                      \
  ENTRY(primitive_desc_query_md)                                                                   \
  ENTRY(primitive_destroy)                                                                         \
  ENTRY(primitive_execute)                                                                         \
  ENTRY(reorder_primitive_desc_create)                                                             \
  ENTRY(stream_create)                                                                             \
  ENTRY(stream_destroy)

typedef struct {
#define DNNL_FIELD(name) __typeof__(dnnl_##name) *name;
  DNNL_ENTRIES(DNNL_FIELD)
#undef DNNL_FIELD
} DnnlLibrary;

extern DnnlLibrary dnnl; /* all NULL until dnnl_library_open has answered STATUS_OK */
/* From the main thread; stays open for the life of the process. */
STATUS_CHECKED Status dnnl_library_open(void);
#endif
