/* image_rows_v3: the loops over rows for x86-64-v3 processors; CMakeLists.txt sets the flags. */
#if defined(__x86_64__)
#define ROWS_NAME image_rows_v3
#include "runtime/image/image_rows.inc"
#endif
