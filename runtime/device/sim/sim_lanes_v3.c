/* sim_lanes_v3: the simulator's handlers for x86-64-v3 processors; CMakeLists.txt sets the flags.
 */
#if defined(__x86_64__) && !defined(FT_SIM_ONE)
#define SIM_NAME v3
#include "runtime/device/sim/sim_lanes.inc"
#endif
