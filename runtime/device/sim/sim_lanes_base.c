/* sim_lanes_base: the simulator's handlers for any processor; CMakeLists.txt sets the flags. */

#define SIM_NAME base
#include "runtime/device/sim/sim_lanes.inc"
