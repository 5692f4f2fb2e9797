/* mesh: the ranks of a training along three axes: data (ranks that share a batch), pipeline (each
 * has some of the layers), tensor (ranks that share each layer's work). The rank's number is
 * (data index * pipeline + pipeline index) * tensor + tensor index. The ranks that differ in one
 * index only are a group along that axis, in the order of their numbers. All ranks are a group, and
 * so are those with the same part of the layers (stage). */
#ifndef FT_BASE_MESH_H
#define FT_BASE_MESH_H
#include <stdbool.h>
#include <string.h>

#define MESH_AXES(X) X(ALL, "all") X(DATA, "data") X(PIPELINE, "pipeline") X(TENSOR, "tensor") X(STAGE, "stage")
typedef enum {
#define X(ID, text) MESH_##ID,
  MESH_AXES(X)
#undef X
      MESH_AXIS_COUNT
} MeshAxis;

typedef struct {
  int data, pipeline, tensor; /* at least 1 */
} Mesh;

static inline const char *mesh_axis_text(MeshAxis axis) {
  static const char *const texts[] = {
#define X(ID, text) text,
      MESH_AXES(X)
#undef X
  };
  return texts[axis];
}

static inline bool mesh_axis_parse(const char *text, MeshAxis *out) {
  for (*out = MESH_ALL; *out < MESH_AXIS_COUNT; ++*out)
    if (!strcmp(mesh_axis_text(*out), text)) return true;
  return false;
}

static inline int mesh_ranks(const Mesh *mesh) {
  return mesh->data * mesh->pipeline * mesh->tensor;
}

/* How many ranks a group of the axis has. */
static inline int mesh_size(const Mesh *mesh, MeshAxis axis) {
  return axis == MESH_DATA       ? mesh->data
         : axis == MESH_PIPELINE ? mesh->pipeline
         : axis == MESH_TENSOR   ? mesh->tensor
         : axis == MESH_STAGE    ? mesh->data * mesh->tensor
                                 : mesh_ranks(mesh);
}

/* From a rank of a group to the next one; of a stage, whose ranks are not evenly spaced: to the next
 * in the first tensor group. */
static inline int mesh_stride(const Mesh *mesh, MeshAxis axis) {
  bool is_spread = axis == MESH_DATA || (axis == MESH_STAGE && mesh->tensor == 1);
  return is_spread ? mesh->pipeline * mesh->tensor : axis == MESH_PIPELINE ? mesh->tensor : 1;
}

/* Which of its group the rank is. */
static inline int mesh_index(const Mesh *mesh, MeshAxis axis, int rank) {
  if (axis == MESH_STAGE)
    return rank / (mesh->pipeline * mesh->tensor) * mesh->tensor + rank % mesh->tensor;
  return rank / mesh_stride(mesh, axis) % mesh_size(mesh, axis);
}

/* The rank that is number `index` in the group of `rank`. */
static inline int mesh_member(const Mesh *mesh, MeshAxis axis, int rank, int index) {
  if (axis == MESH_STAGE) {
    int group = index / mesh->tensor * mesh->pipeline + mesh_index(mesh, MESH_PIPELINE, rank);
    return group * mesh->tensor + index % mesh->tensor;
  }
  return rank + (index - mesh_index(mesh, axis, rank)) * mesh_stride(mesh, axis);
}
#endif
