// The forwarding libcgotorch.so: every C function of gotorch and of csrc/, without libtorch. The
// functions forward to libfulcrum_torch.so, which fulcrum_forward_load opens from the same folder.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// fulcrum_forward_load opens libfulcrum_torch.so (and with it libtorch: about 0.6 s and 160 MB) and
// returns NULL, or one line saying what is wrong. It may be called from any thread, any number of
// times; the first outcome stands. The message lives as long as the process.
const char *fulcrum_forward_load(void);

#ifdef __cplusplus
}
#endif
