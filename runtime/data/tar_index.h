/* tar_index: where the files of a tar archive begin, in a file beside it (shard.tar.ftindex), so that
 * a large archive is not read through each time. It is used only where the archive's length, time of
 * change and some of its bytes are those that it was made from; else, and where none can be written,
 * the archive is read. A reader of samples looks at each member's head besides. */
#ifndef FT_RUNTIME_TAR_INDEX_H
#define FT_RUNTIME_TAR_INDEX_H
#include "runtime/data/tar_file.h"
#include <sys/stat.h>

typedef Status TarEach(void *context, const TarMember *member);
/* Calls `each` with every file of the archive `path`, open as fd. may_read: an index is used;
 * may_write: one is written, if there is none that fits. */
STATUS_CHECKED Status tar_index_list(const char *path, int fd, const struct stat *info,
                                     bool may_read, bool may_write, TarEach *each, void *context);
/* The same of bytes [base, base + size) of any file, without an index. */
STATUS_CHECKED Status tar_index_scan(int fd, uint64_t base, uint64_t size, TarEach *each,
                                     void *context);
#endif
