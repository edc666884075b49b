// What happens to reads of mapped files that were cut; faults.c says why.
#pragma once

#include <stdint.h>

// fulcrum_catch_faults installs the handler, once, for n records of four words at table, which stays where it is.
void fulcrum_catch_faults(void *table, uint64_t n);
