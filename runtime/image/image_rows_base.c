/* image_rows_base: the loops over rows for any processor; CMakeLists.txt sets the flags. */
#define ROWS_NAME image_rows_base
#include "runtime/image/image_rows.inc"
