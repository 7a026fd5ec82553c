# SPDX-License-Identifier: Apache-2.0
#
# mote. `make help` lists the targets. Sources are found by folder: a new file
# vmm/x.c, tests/unit/test_x.c, tests/fuzz/fuzz_x.c needs no line here, but the
# layer of a file in vmm/ is named below (base, core, or root for the rest).

MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY: # keep objects that only a chain of rules names

CC ?= gcc
ifeq ($(origin CC),default)
CC = gcc
endif
MUSL_CC ?= musl-gcc
B ?= build
VERSION := 0.1.0

# V=1 shows the commands.
V ?= 0
Q = $(if $(filter 0,$(V)),@)
say = $(if $(filter 0,$(V)),@printf '  %-7s %s\n' $(1) '$(2)')

STD = -std=c11 -D_GNU_SOURCE
WARN = -Wall -Wextra -Wshadow -Wconversion -Wcast-qual -Wcast-align -Wvla \
       -Wformat=2 -Wimplicit-fallthrough -Werror
OPT ?= -O2 -g
HARDEN ?= -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fPIE
SAN ?=
CPPFLAGS = -I. -I$(B) -DMOTE_VERSION='"$(VERSION)"'
CFLAGS_ALL = $(STD) $(WARN) $(OPT) $(HARDEN) $(SAN) $(CPPFLAGS) -MMD -MP
LDFLAGS_ALL = $(SAN) -Wl,-z,relro,-z,now

# --- optional decompressors for bzImage payloads --------------------------
have = $(shell pkg-config --exists $(1) 2>/dev/null && echo 1)
HAVE_ZSTD := $(call have,libzstd)
HAVE_LZ4 := $(call have,liblz4)
HAVE_LZMA := $(call have,liblzma)
CPPFLAGS += $(if $(HAVE_ZSTD),-DHAVE_ZSTD) $(if $(HAVE_LZ4),-DHAVE_LZ4) \
            $(if $(HAVE_LZMA),-DHAVE_LZMA)
BOOT_LIBS = -lfdt -lz $(if $(HAVE_ZSTD),-lzstd) $(if $(HAVE_LZ4),-llz4) \
            $(if $(HAVE_LZMA),-llzma)
# Debian 12 builds liburing.so without io_uring_enable_rings, the archive has it.
URING_LIB = -l:liburing.a
VMM_LIBS = $(URING_LIB) $(BOOT_LIBS) -ljansson

# --- sources by layer -----------------------------------------------------
BASE_MODULES = util log errmsg args stop tally unix_listen state snapshot_mem \
               snapshot_pair evloop evloop_uring \
               evloop_epoll cow_format cow_create cow_file cow_merge
CORE_MODULES = kvm guest_mem pagemap bus irq vcpu cpu_x86 quirks_x86 \
               xsave_x86 probe_x86 \
               register_pages cpu_state_x86 cpu_id_state_x86 chip_state_x86 \
               dirty
vmm_srcs = $(foreach m,$(1),$(wildcard vmm/$(m).c))
BASE_SRC := $(call vmm_srcs,$(BASE_MODULES))
CORE_SRC := $(call vmm_srcs,$(CORE_MODULES))
ROOT_SRC := $(filter-out $(BASE_SRC) $(CORE_SRC) vmm/main.c,$(wildcard vmm/*.c))
DEVICES_SRC := $(wildcard devices/*.c)
BOOT_SRC := $(wildcard boot/*.c)
LIBMOTE_SRC := $(wildcard tools/libmote/*.c)
MOTE_SRC := $(wildcard tools/mote/*.c)
JAIL_SRC := $(wildcard tools/jail/*.c)
AGENT_SRC := $(wildcard guest/agent/*.c)
PAYLOAD_SRC := $(wildcard guest/payloads/p_*.c)
UNIT_SRC := $(wildcard tests/unit/test_*.c)
HARNESS_SRC := $(wildcard tests/harness/*.c)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)

objs = $(patsubst %.c,$(B)/obj/%.o,$(1))
LIB_BASE = $(B)/lib/libbase.a
LIB_CORE = $(B)/lib/libcore.a
LIB_DEVICES = $(B)/lib/libdevices.a
LIB_BOOT = $(B)/lib/libboot.a
LIB_ROOT = $(B)/lib/libroot.a
LIB_MOTE = $(B)/lib/libmote.a
# The number in the name rises when a caller built before would break.
LIB_MOTE_SO = $(B)/lib/libmote.so.0
# Link order is the include direction of the layers: an upward call fails.
VMM_ARCHIVES = $(LIB_ROOT) $(LIB_BOOT) $(LIB_DEVICES) $(LIB_CORE) $(LIB_BASE)

.PHONY: all
all: $(if $(wildcard vmm/main.c),$(B)/mote-vmm) \
     $(if $(MOTE_SRC),$(B)/mote $(LIB_MOTE_SO)) $(B)/mote-jail $(if $(AGENT_SRC),$(B)/mote-agent)

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) -c $< -o $@

# --- made by programs of ours ----------------------------------------------
# By libseccomp, on the machine that builds: see vmm/gen/seccomp_gen.c.
$(B)/gen/seccomp_gen: vmm/gen/seccomp_gen.c vmm/seccomp_rules.h
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(STD) $(WARN) -O1 -I. -o $@ $< -lseccomp
$(B)/gen/seccomp_programs.h: $(B)/gen/seccomp_gen
	$(call say,GEN,$@)
	$(Q)$< >$@.tmp && mv $@.tmp $@
$(B)/obj/vmm/seccomp_filter.o: $(B)/gen/seccomp_programs.h

define archive
$(1): $(2)
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(Q)ar rcs $$@ $$^
endef
$(eval $(call archive,$(LIB_BASE),$(call objs,$(BASE_SRC))))
$(eval $(call archive,$(LIB_CORE),$(call objs,$(CORE_SRC))))
$(eval $(call archive,$(LIB_DEVICES),$(call objs,$(DEVICES_SRC))))
$(eval $(call archive,$(LIB_BOOT),$(call objs,$(BOOT_SRC))))
$(eval $(call archive,$(LIB_ROOT),$(call objs,$(ROOT_SRC))))
# With the helpers it needs, so that it links alone.
LIBMOTE_BASE = $(addprefix vmm/,util.c errmsg.c state.c snapshot_mem.c \
                                snapshot_pair.c)
$(eval $(call archive,$(LIB_MOTE),$(call objs,$(LIBMOTE_SRC) $(LIBMOTE_BASE))))

# Only the names of mote.h leave it: the map says which.
$(B)/pic/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC-PIC,$<)
	$(Q)$(CC) $(filter-out -fPIE,$(CFLAGS_ALL)) -fPIC -c $< -o $@
$(LIB_MOTE_SO): $(patsubst %.c,$(B)/pic/%.o,$(LIBMOTE_SRC) $(LIBMOTE_BASE)) \
                tools/libmote/libmote.map
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,$(@F) -Wl,-z,defs \
	    -Wl,--version-script=tools/libmote/libmote.map -o $@ \
	    $(filter %.o,$^) -ljansson -lz

# The monitor is static: it starts faster and needs nothing from a jail.
VMM_LINK ?= -static-pie
$(B)/mote-vmm: $(B)/obj/vmm/main.o $(VMM_ARCHIVES)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $(VMM_LINK) -o $@ $^ $(VMM_LIBS) -lpthread

# As the monitor: it starts one for each machine, and stays beside it.
$(B)/mote-jail: $(call objs,$(JAIL_SRC)) $(LIB_BASE)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $(VMM_LINK) -o $@ $^

$(B)/mote: $(call objs,$(MOTE_SRC)) $(LIB_MOTE) $(LIB_BASE)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -pie -o $@ $^ -ljansson -lz $(URING_LIB) -lpthread

# musl brings no kernel headers: the host's come last, so that libc's own win.
MULTIARCH := $(shell gcc -print-multiarch)
AGENT_CFLAGS = $(STD) $(WARN) -Os -g -idirafter /usr/include \
               -idirafter /usr/include/$(MULTIARCH) -ffunction-sections -fdata-sections \
               -fno-asynchronous-unwind-tables -I. \
               -DMOTE_VERSION='"$(VERSION)"' -MMD -MP
$(B)/agent/%.o: %.c
	@mkdir -p $(@D)
	$(call say,MUSL-CC,$<)
	$(Q)$(MUSL_CC) $(AGENT_CFLAGS) -c $< -o $@
$(B)/mote-agent: $(patsubst %.c,$(B)/agent/%.o,$(AGENT_SRC))
	$(call say,LD,$@)
	$(Q)$(MUSL_CC) -static -Wl,--gc-sections -Wl,-z,noseparate-code -s -o $@ $^

# --- guest payloads
# Freestanding programs that the monitor boots like a kernel. Plain x86-64
# without SSE: some hosts emulate the guest's kernel mode in software, and
# these run in nothing else. guest/payloads/README.md says more.
PAYLOADS = $(patsubst guest/payloads/%.c,$(B)/guest/payloads/%.elf,$(PAYLOAD_SRC))
PAYLOAD_LIB_SRC := $(filter-out $(PAYLOAD_SRC),$(wildcard guest/payloads/*.c)) \
                   $(wildcard guest/payloads/*.S)
PAYLOAD_LIB = $(addprefix $(B)/payload/,$(addsuffix .o,$(PAYLOAD_LIB_SRC)))
PAYLOAD_CFLAGS = -std=gnu11 $(WARN) -O1 -g -ffreestanding -fno-builtin \
                 -fno-pic -fno-stack-protector -mno-red-zone -march=x86-64 \
                 -mgeneral-regs-only -fcf-protection=none \
                 -fno-asynchronous-unwind-tables -I. -MMD -MP
PAYLOAD_LDFLAGS = -nostdlib -static -no-pie -Wl,-T,guest/payloads/payload.ld \
                  -Wl,--build-id=none -Wl,-z,max-page-size=4096 \
                  -Wl,-z,noexecstack

.PHONY: payloads
payloads: $(PAYLOADS)
$(B)/payload/%.c.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(PAYLOAD_CFLAGS) -c $< -o $@
$(B)/payload/%.S.o: %.S
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(PAYLOAD_CFLAGS) -c $< -o $@
$(B)/guest/payloads/%.elf: $(B)/payload/guest/payloads/%.c.o $(PAYLOAD_LIB) \
                           guest/payloads/payload.ld
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(PAYLOAD_LDFLAGS) -o $@ $(filter %.o,$^)

# --- the guest's files -----------------------------------------------------
GUEST_FILES = build/guest/agent.cpio build/guest/rootfs.img
build/guest/agent.cpio: build/mote-agent $(wildcard guest/agent/mkinitrd*)
	@mkdir -p $(@D)
	guest/agent/mkinitrd.sh $< $@
build/guest/rootfs.img: $(wildcard guest/rootfs/*)
	@mkdir -p $(@D)
	guest/rootfs/build.sh $@

.PHONY: guest kernel-tiny kernel-sandbox
guest: $(GUEST_FILES)
kernel-tiny kernel-sandbox: kernel-%:
	@guest/kernel/build.sh $*

# --- tests ----------------------------------------------------------------
# Programs that the end-to-end cases run inside a guest, and in a jail.
GUEST_TEST_BINS = $(patsubst tests/e2e/guest/%.c,$(B)/tests/%,\
                    $(wildcard tests/e2e/guest/*.c)) $(B)/tests/jail_probe
.PHONY: guest-tests
guest-tests: $(GUEST_TEST_BINS)
$(B)/tests/%: tests/e2e/guest/%.c
	@mkdir -p $(@D)
	$(call say,MUSL-CC,$<)
	$(Q)$(MUSL_CC) $(AGENT_CFLAGS) -static -s -o $@ $<

# What stands in for the monitor in tests/jail: static, as that is.
$(B)/tests/%: tests/jail/%.c
	@mkdir -p $(@D)
	$(call say,MUSL-CC,$<)
	$(Q)$(MUSL_CC) $(AGENT_CFLAGS) -static -s -o $@ $<

UNIT_BINS = $(patsubst tests/unit/%.c,$(B)/unit/%,$(UNIT_SRC))
TEST_ARCHIVES = $(LIB_ROOT) $(LIB_BOOT) $(LIB_DEVICES) $(LIB_CORE) \
                $(LIB_MOTE) $(LIB_BASE)
# Modules of the agent that stand alone, so that the host can test them.
AGENT_PURE = $(call objs,guest/agent/codec.c guest/agent/text.c \
                    guest/agent/start.c guest/agent/words.c \
                    guest/agent/restore_parse.c)
# And of the jailer: what needs no root.
JAIL_PURE = $(call objs,$(addprefix tools/jail/,options.c cgroup_plan.c path.c \
                                  remove.c))
# And of the benches: what only computes and writes.
MOTE_PURE = $(call objs,$(addprefix tools/mote/,bench_svg.c bench_table.c \
                                  elf_syms.c))
TEST_OBJS = $(call objs,$(HARNESS_SRC)) $(AGENT_PURE) $(JAIL_PURE) $(MOTE_PURE)
$(B)/unit/%: $(B)/obj/tests/unit/%.o $(TEST_OBJS) $(TEST_ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -pie -o $@ $^ $(VMM_LIBS) -lcmocka -lpthread

# Programs that the benches run.
$(B)/bench/%: $(B)/obj/tests/bench/%.o $(TEST_OBJS) $(TEST_ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -pie -o $@ $^ $(VMM_LIBS) -lcmocka -lpthread

# Fuzz targets as plain programs that run the seed files given to them.
SEED_BINS = $(patsubst tests/fuzz/%.c,$(B)/seeds/%,$(FUZZ_SRC))
$(B)/seeds/%: $(B)/obj/tests/fuzz/%.o $(B)/obj/tests/fuzz/standalone_main.o \
              $(TEST_OBJS) $(TEST_ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -pie -o $@ $^ $(VMM_LIBS) -lcmocka -lpthread
# The same under libFuzzer: `make fuzz` runs each for FUZZ_SECONDS.
FUZZ_BINS = $(patsubst tests/fuzz/%.c,$(B)/fuzz/%,$(FUZZ_SRC))
$(B)/fuzz/%: $(B)/obj/tests/fuzz/%.o $(TEST_OBJS) $(TEST_ARCHIVES)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -fsanitize=fuzzer -pie -o $@ $^ $(VMM_LIBS) \
	    -lcmocka -lpthread

.PHONY: unit-bins seed-bins fuzz-bins
unit-bins: $(UNIT_BINS)
seed-bins: $(SEED_BINS)
fuzz-bins: $(FUZZ_BINS)

# gcc's flow analysis misfires where sanitizers add their branches.
SAN_OPT = OPT="-O1 -g -Wno-format-truncation -Wno-maybe-uninitialized"
ASAN = B=build-asan CC=gcc $(SAN_OPT) HARDEN=-fPIE VMM_LINK=-pie \
       SAN="-fsanitize=address,undefined -fno-sanitize-recover=all"
TSAN = B=build-tsan CC=gcc $(SAN_OPT) HARDEN=-fPIE VMM_LINK=-pie \
       SAN="-fsanitize=thread"
FUZZ = B=build-fuzz CC=clang OPT="-O1 -g" HARDEN=-fPIE \
       SAN="-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all"
FUZZ_SECONDS ?= 60

# What the lanes of tests/run.sh build.
.PHONY: build-gcc build-clang-all build-asan-all build-tsan-all build-fuzz-all
build-gcc: all payloads unit-bins guest-tests
build-clang-all:
	+$(MAKE) B=build-clang CC=clang all unit-bins seed-bins
build-asan-all:
	+$(MAKE) $(ASAN) unit-bins seed-bins
build-tsan-all:
	+$(MAKE) $(TSAN) unit-bins
build-fuzz-all:
	+$(MAKE) $(FUZZ) fuzz-bins

.PHONY: lint check test fuzz soak
lint:
	tests/lint/lint.sh
check:
	@tools/dev/deps.sh test
	@tests/run.sh check
test:
	@tools/dev/deps.sh test
	@tests/run.sh test
fuzz: build-fuzz-all
	tests/fuzz/run.sh build-fuzz/fuzz $(FUZZ_SECONDS)
soak:
	@tools/dev/deps.sh test
	@tests/run.sh soak

# --- the first thing a newcomer types ---------------------------------------
CMD ?= uname -a
.PHONY: run build-run
build-run: all guest
run:
	@tools/dev/deps.sh run
	@+$(MAKE) --no-print-directory -s -j$$(nproc) build-run
	@flavour=$$(build/mote-vmm --probe | \
	    grep -q '"emulated": true' && echo tiny || echo sandbox); \
	guest/kernel/build.sh "$$flavour" && \
	exec build/mote run -v --kernel "$$flavour" -- /bin/sh -c '$(CMD)'

# --- install ---------------------------------------------------------------
PREFIX ?= /usr/local
DESTDIR ?=
I = $(DESTDIR)$(PREFIX)
.PHONY: install uninstall
install: all guest
	install -d $(I)/bin $(I)/libexec/mote $(I)/share/mote $(I)/lib/pkgconfig \
	    $(I)/include
	install -m 755 build/mote $(I)/bin/
	install -m 755 build/mote-vmm build/mote-jail $(I)/libexec/mote/
	install -m 644 $(GUEST_FILES) $(I)/share/mote/
	for k in tiny sandbox; do \
	    [ ! -e build/guest/$$k/vmlinux ] || \
	    install -D -m 644 build/guest/$$k/vmlinux $(I)/share/mote/$$k/vmlinux \
	        || exit 1; \
	done
	install -m 644 $(LIB_MOTE) $(I)/lib/
	install -m 755 $(LIB_MOTE_SO) $(I)/lib/
	ln -sf libmote.so.0 $(I)/lib/libmote.so
	install -m 644 tools/libmote/mote.h $(I)/include/
	printf 'prefix=%s\nName: libmote\nDescription: start and drive mote virtual machines\nVersion: %s\nCflags: -I$${prefix}/include\nLibs: -L$${prefix}/lib -lmote -ljansson -lz\n' \
	    '$(PREFIX)' '$(VERSION)' >$(I)/lib/pkgconfig/libmote.pc
uninstall:
	rm -f $(I)/bin/mote $(I)/include/mote.h $(I)/lib/libmote.a \
	    $(I)/lib/libmote.so $(I)/lib/libmote.so.0 \
	    $(I)/lib/pkgconfig/libmote.pc $(I)/libexec/mote/mote-vmm \
	    $(I)/libexec/mote/mote-jail
	rm -f $(I)/share/mote/agent.cpio $(I)/share/mote/rootfs.img \
	    $(I)/share/mote/tiny/vmlinux $(I)/share/mote/sandbox/vmlinux
	-rmdir $(I)/share/mote/tiny $(I)/share/mote/sandbox $(I)/share/mote \
	    $(I)/libexec/mote 2>/dev/null

.PHONY: help
help:
	@echo 'make run [CMD=...]  build what is needed, run CMD in a VM'
	@echo 'make                build the programs into build/'
	@echo 'make test           all tests: what CI runs'
	@echo 'make check          tests without KVM; make lint: only the linters'
	@echo 'make fuzz           each fuzz target for FUZZ_SECONDS (60)'
	@echo 'make soak           the long tests'
	@echo 'make kernel-tiny, kernel-sandbox, guest   the files a guest needs'
	@echo 'make install, uninstall                   PREFIX= DESTDIR='
	@echo 'make clean          remove build/ and build-*/ (the kernel cache stays)'

.PHONY: clean
clean:
	rm -rf build build-*

DEPS := $(shell find $(B) -name '*.d' 2>/dev/null)
-include $(DEPS)
