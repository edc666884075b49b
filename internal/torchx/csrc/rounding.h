// The faults that tests of bfloat16 must see (rounding.go).
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

void fc_plant_rounding(int operations);  // bits of the operations that round as their rows do; none to begin with

#ifdef __cplusplus
}
#endif
