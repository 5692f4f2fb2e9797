/* weight_files under any bytes: up to the first 0 byte a rename of --init-rename, then the index of
 * a model in several files, of which a.safetensors is there: taken, or refused in a sentence. What
 * is taken has names in order, each once. */
#include "runtime/checkpoint/weight_files.h"
#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char shard[] = "\x80\0\0\0\0\0\0\0"
                            "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                            "\"b.c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}"
                            "                   "
                            "\0\0\0\0\0\0\0\0";
static char folder[] = "/tmp/ft-fuzz-XXXXXX", index_path[64], shard_file[64];

static void clean(void) {
  unlink(index_path);
  unlink(shard_file);
  rmdir(folder);
}

static void set_up(void) {
  if (!mkdtemp(folder)) abort();
  snprintf(index_path, sizeof index_path, "%s/i.json", folder);
  snprintf(shard_file, sizeof shard_file, "%s/a.safetensors", folder);
  if (text_write_file(shard_file, shard, 8 + 0x80 + 8)) abort();
  atexit(clean);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!index_path[0]) set_up();
  const uint8_t *end = memchr(data, 0, size);
  size_t first = end ? (size_t)(end - data) : 0;
  char *rename = strndup((const char *)data, first);
  const uint8_t *json = end ? end + 1 : data;
  FILE *file = fopen(index_path, "wb");
  if (!rename || !file) abort();
  fwrite(json, 1, size - (size_t)(json - data), file);
  fclose(file);
  const char *path = index_path, *renames[] = {rename};
  WeightFiles files;
  Status status = weight_files_open(&path, 1, renames, first > 0, &files);
  if (status != STATUS_OK && !status_message()[0]) abort();
  for (int i = 0; status == STATUS_OK && i < files.all.tensor_count; i++) {
    const SafeTensor *tensor = &files.all.tensor[i];
    if (!*tensor->name || tensor->bytes != 4 || !weight_files_path(&files, tensor)) abort();
    if (i && strcmp(tensor[-1].name, tensor->name) >= 0) abort();
  }
  weight_files_close(&files);
  free(rename);
  return 0;
}
