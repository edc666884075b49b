# The C++ part of the build; the Makefile calls it as `make -f scripts/native.mk`.
#
#   bin/lib/libfulcrum_torch.so   gotorch's cgotorch/*.cc (from the module cache, unchanged) and
#                                 internal/torchx/csrc/*.cc, linked to libtorch
#   bin/lib/libcgotorch.so        the forwarding library that Go links to (internal/torchx/forward)
#   build/stubs/lib*.a            empty: gotorch's cgo lines name libtorch, the Go program must not need it
#
# Everything in between lies in build/native. A change of LIBTORCH or of flags rebuilds everything.

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SECONDARY:

OUT := build/native
comma := ,
GOTORCH := $(shell scripts/gotorch-dir)
CSRC := internal/torchx/csrc
FORWARD := internal/torchx/forward

CXX := $(if $(filter default,$(origin CXX)),g++,$(CXX))
CC := $(if $(filter default,$(origin CC)),gcc,$(CC))

include $(OUT)/config.mk
FLAGS = $(TORCH_CXXFLAGS) -I$(GOTORCH) -I$(CSRC)
# A macro that no header has defined is an error: an unknown version of libtorch would count as 0.
WARN = -Wall -Wextra -Werror=undef -Wno-unknown-pragmas -Wno-psabi

ours := $(patsubst $(CSRC)/%.cc,$(OUT)/csrc/%.o,$(wildcard $(CSRC)/*.cc))
theirs := $(OUT)/gotorch.o

# How many files are to be compiled, and which of them this is: c++ 3 of 17.
ifndef COUNTING
TOTAL := $(shell rm -f $(OUT)/count; \
	$(MAKE) --no-print-directory -n COUNTING=1 -f scripts/native.mk OUT=$(OUT) $(MAKECMDGOALS) 2>/dev/null | grep -c '^echo.*c++ ')
SAY = echo "c++  $$(flock $(OUT)/count.lock sh -c 'echo >> $(OUT)/count; wc -l < $(OUT)/count') of $(TOTAL) "
else
SAY = echo "c++ "
endif

.PHONY: all lint FORCE
all: bin/lib/libfulcrum_torch.so bin/lib/libcgotorch.so build/stubs/libtorch.a

# Rewritten only when it changes, so that everything may depend on it. Not while counting: make would find it up to date then and go on with
# what it read before.
ifndef COUNTING
$(OUT)/config.mk: FORCE
	@mkdir -p $(OUT)
	@{ scripts/libtorch.sh && echo '# $(CXX) $(GOTORCH)'; } > $@.new || { rm -f $@.new; exit 1; }
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
endif

# Our units read a small torch/torch.h (csrc/small), once: precompiled.
PCH := $(OUT)/pch/torch.h
$(PCH): $(CSRC)/small/torch/torch.h $(OUT)/config.mk
	@mkdir -p $(@D)
	@echo '#include <torch/torch.h>' > $@
$(PCH).gch: $(PCH)
	@$(SAY) "torch/torch.h (precompiled, libtorch $(TORCH_VERSION))"
	@$(CXX) -I$(CSRC)/small $(FLAGS) -x c++-header $< -o $@

COMPILE = $(CXX) $(FLAGS) -MMD -MP -c $< -o $@
$(OUT)/csrc/%.o: $(CSRC)/%.cc $(PCH).gch
	@mkdir -p $(@D)
	@$(SAY) "$<"
	@$(COMPILE) -I$(CSRC)/small -include $(PCH) $(WARN)
# gotorch never changes, so all its sources are one unit, which reads libtorch's own header for 20 s: first, beside the small one.
$(OUT)/gotorch.cc: $(OUT)/config.mk
	@printf '#include "%s"\n' $(patsubst $(GOTORCH)/%,%,$(sort $(wildcard $(GOTORCH)/cgotorch/*.cc))) > $@
$(theirs): $(OUT)/gotorch.cc
	@$(SAY) gotorch
	@$(COMPILE) -w
-include $(ours:.o=.d) $(theirs:.o=.d)

# A removed source must leave the library too, hence the list of objects as a prerequisite.
$(OUT)/objects: FORCE
	@echo '$(theirs) $(ours)' > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# Debian's libtorch names OpenCV, FFmpeg and key-value stores, takes no symbol of them, and they bring 220 libraries along: half of the time
# that loading takes. Empty libraries of their names stand in for them; RPATH, unlike RUNPATH, also holds for what libtorch names.
UNUSED := $(shell objdump -p $(TORCH_LIB)/libtorch_cpu.so 2>/dev/null | awk '$$1 == "NEEDED" && \
	$$2 ~ /^lib(opencv_.*|avcodec|avformat|avutil|swscale|swresample|zmq|leveldb|lmdb|snappy)[.]so/ { print "bin/lib/unused/" $$2 }')
$(UNUSED):
	@mkdir -p $(@D)
	@$(CC) -shared -nostdlib -Wl,-soname,$(@F) -o $@ -x c /dev/null

# Libraries are replaced, never rewritten: a running program keeps the one it has mapped.
bin/lib/libfulcrum_torch.so: $(theirs) $(ours) $(OUT)/objects $(UNUSED)
	@mkdir -p $(@D)
	@echo "link $@"
	@$(CXX) -o $@.new $(theirs) $(ours) $(if $(UNUSED),-Wl$(comma)--disable-new-dtags$(comma)-rpath$(comma)'$$ORIGIN/unused') $(TORCH_LDFLAGS)
	@mv $@.new $@

# One line for each C function of the real library: not C++ (_Z…), not the linker's own (_init, _fini).
# Rewritten only when the functions change: editing a function's body relinks nothing else.
$(OUT)/symbols.stamp: bin/lib/libfulcrum_torch.so
	@nm -D --defined-only $< | awk '$$2 == "T" && $$3 !~ /^_/ && $$3 != "SetNumThreads" { print $$3 }' | LC_ALL=C sort \
		| awk '{ print "FORWARD(" NR-1 ", " $$1 ")" }' > $(OUT)/symbols.inc.new
	@test -s $(OUT)/symbols.inc.new
	@if cmp -s $(OUT)/symbols.inc.new $(OUT)/symbols.inc; then rm $(OUT)/symbols.inc.new; else mv $(OUT)/symbols.inc.new $(OUT)/symbols.inc; fi
	@touch $@
$(OUT)/symbols.inc: $(OUT)/symbols.stamp ;

bin/lib/libcgotorch.so: $(OUT)/symbols.inc $(wildcard $(FORWARD)/*.c $(FORWARD)/*.h)
	@echo "link $@"
	@$(CC) -std=gnu11 -O2 -fPIC -Wall -Wextra -Werror -shared -pthread -I$(OUT) \
		-Wl,-soname,libcgotorch.so -o $@.new $(wildcard $(FORWARD)/*.c) -ldl
	@mv $@.new $@

build/stubs/libtorch.a:
	@mkdir -p $(@D)
	@for name in c10 torch_cpu torch; do rm -f $(@D)/lib$$name.a; ar rcs $(@D)/lib$$name.a; done

# Our sources under -Werror, for `make lint`; the product's build does not fail over a compiler's new warning.
lint: $(patsubst $(CSRC)/%.cc,lint-%,$(wildcard $(CSRC)/*.cc))
lint-%: $(CSRC)/%.cc $(PCH).gch FORCE
	@$(CXX) -I$(CSRC)/small $(FLAGS) $(WARN) -Werror -include $(PCH) -fsyntax-only $<
