/* tar: what a set of shards is, for the files that make one. */
#ifndef FT_RUNTIME_TAR_H
#define FT_RUNTIME_TAR_H
#include "runtime/data/sample_set.h"
#include "runtime/data/sample_value.h"
#include "runtime/data/tar_keys.h"

/* One file of a sample: 12 bytes, for there may be many millions. */
typedef struct {
  uint32_t block;     /* of 512 bytes in the archive, where it begins */
  uint32_t size : 30; /* bytes */
  uint32_t way : 2;   /* of its input's key */
  uint32_t head_sum;  /* of its head in the archive: is it still the same? */
} TarPart;

typedef struct {
  int64_t first; /* sample */
  uint64_t base; /* of the unpacked archive in the temporary file */
  bool is_packed;
} TarShard;

typedef struct {
  SampleSet set;
  char **paths;
  TarShard *shards;
  TarKey *keys;        /* by input */
  SampleValue *values; /* … that gets no image */
  int input_count;
  TarPart *parts;  /* by sample, then by input */
  uint64_t *names; /* by sample: where its key begins in `text` */
  Text text;       /* the keys; each ends in NUL */
  size_t room;     /* of samples */
  int temporary;   /* -1: none. All compressed shards, unpacked; it has no name */
  uint64_t unpacked;
} Tar;

/* Lists the samples of shard i, which is opened for it. */
STATUS_CHECKED Status tar_list_shard(Tar *tar, int i, bool may_read, bool may_write);
#endif
