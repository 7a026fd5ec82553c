# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154,SC2034
#
# Part of test.sh: build.sh against a toy source that "builds" in a second.
# The toy has the make targets and the one script that recipe.sh uses; its
# olddefconfig drops CONFIG_VANISHES, as kconfig drops an unmet option.

kit=$tmp/kit # a copy of this folder with a toy fragment and a toy patch
toy=$tmp/toy
src=$toy

make_toy() {
    mkdir -p "$kit/patches" "$toy/scripts/kconfig"
    cp "$here/build.sh" "$here/recipe.sh" "$kit/"
    printf '# a reason\nCONFIG_A=y\n# CONFIG_B is not set\n' >"$kit/tiny.config"
    cp "$kit/tiny.config" "$kit/sandbox.config"
    cat >"$kit/patches/0001-toy.patch" <<'PATCH'
--- a/main.c
+++ b/main.c
@@ -1 +1 @@
-int main(void) { return 1; }
+int main(void) { return 0; }
PATCH
    echo 'int main(void) { return 1; }' >"$toy/main.c"
    touch "$toy/Kbuild"
    # shellcheck disable=SC2016
    printf '%s\n' \
        'mrproper:' \
        'tinyconfig:' \
        '	echo "CONFIG_B=y" >$(O)/.config' \
        'olddefconfig:' \
        '	sed -i /CONFIG_VANISHES/d $(O)/.config' \
        'vmlinux:' \
        '	@echo "  CC      main.o"' \
        '	sleep $$(cat main.sleep 2>/dev/null || echo 0)' \
        '	gcc -o $(O)/vmlinux main.c' >"$toy/Makefile"
    cat >"$toy/scripts/kconfig/merge_config.sh" <<'MERGE'
#!/bin/sh
grep CONFIG_ "$5" >"$4"
MERGE
    chmod +x "$toy/scripts/kconfig/merge_config.sh"
}

# build ARGS...: runs the copy; status in $got, output in $log.
build() {
    log=$tmp/log
    got=0
    MOTE_CACHE=$tmp/cache MOTE_LINUX_SRC=$src "$kit/build.sh" "$@" \
        >"$log" 2>&1 || got=$?
}

key() {
    build --print-key tiny
    cat "$log"
}

# What is in the cache besides finished entries and small notes.
leftovers() {
    find "$tmp/cache/kernel" -maxdepth 1 -name 'scratch.*'
}

test_build_then_cached() {
    build --is-cached tiny
    expect 'an empty cache has no kernel' 1 "$log"
    build tiny --out "$tmp/out"
    expect 'a kernel is built' 0 "$log" 'built in' "$tmp/out/vmlinux"
    cp "$tmp/out/vmlinux" "$tmp/program"
    chmod +x "$tmp/program"
    got=0
    "$tmp/program" || got=$?
    expect 'the patch is in what is installed' 0 "$log"
    ls -l "$tmp/cache/kernel/$(key)" >"$tmp/entry"
    got=0
    expect 'an entry has three files' 0 "$tmp/entry" vmlinux.debug config
    build --is-cached tiny
    expect 'the cache then has it' 0 "$log"
    start=$(date +%s%N)
    build tiny --out "$tmp/out2"
    took=$((($(date +%s%N) - start) / 1000000))
    expect "a cached kernel is one line ($took ms)" 0 "$log" '(cached'
    [ "$(wc -l <"$log")" -eq 1 ] && [ "$took" -lt 5000 ]
    got=$?
    expect 'and takes no time' 0 "$log"
    build tiny --out "$tmp/out"
    expect 'installing twice is harmless' 0 "$log"
}

test_key_follows_inputs() {
    before=$(key)
    for f in tiny.config recipe.sh patches/0001-toy.patch; do
        cp "$kit/$f" "$tmp/saved"
        echo '# changed' >>"$kit/$f"
        [ "$(key)" != "$before" ]
        got=$?
        expect "the key changes with $f" 0 "$log"
        cp "$tmp/saved" "$kit/$f"
    done
    echo >>"$kit/sandbox.config"
    [ "$(key)" = "$before" ]
    got=$?
    expect 'the key ignores the other flavour' 0 "$log"
    echo '/* */' >"$toy/more.c"
    [ "$(key)" != "$before" ]
    got=$?
    expect 'the key changes with the source' 0 "$log"
    rm "$toy/more.c"
}

test_lost_option_is_named() {
    echo 'CONFIG_VANISHES=y' >>"$kit/sandbox.config"
    build sandbox --out "$tmp/out3"
    expect 'an option without effect is an error' 1 "$log" \
        'CONFIG_VANISHES=y' failed-sandbox.log
    [ -z "$(leftovers)" ] && [ ! -e "$tmp/out3" ]
    got=$?
    expect 'a failed build leaves nothing but its log' 0 "$log"
    sed -i s/CONFIG_VANISHES=y/CONFIG_A=n/ "$kit/sandbox.config"
    build sandbox --out "$tmp/out3"
    expect 'an option set twice is an error' 1 "$log" 'set twice' CONFIG_A
    cp "$kit/tiny.config" "$kit/sandbox.config"
}

test_patch_that_does_not_apply() {
    cp "$kit/patches/0001-toy.patch" "$tmp/saved"
    sed -i 's/return 1/return 2/' "$kit/patches/0001-toy.patch"
    build sandbox --out "$tmp/out3"
    expect 'a patch that does not apply is named' 1 "$log" \
        '0001-toy.patch does not apply'
    cp "$tmp/saved" "$kit/patches/0001-toy.patch"
}

# A builder that is killed, and one that waits for another.
test_killed_and_waiting() {
    echo 30 >"$toy/main.sleep"
    MOTE_CACHE=$tmp/cache MOTE_LINUX_SRC=$toy "$kit/build.sh" tiny \
        --out "$tmp/out4" >"$tmp/first" 2>&1 &
    first=$!
    until grep -qs 'CC  ' "$tmp"/cache/kernel/scratch.*/log; do
        sleep 0.1
    done
    MOTE_CACHE=$tmp/cache MOTE_LINUX_SRC=$toy "$kit/build.sh" tiny \
        --out "$tmp/out5" >"$tmp/second" 2>&1 &
    second=$!
    until grep -qs waiting "$tmp/second"; do
        sleep 0.1
    done
    echo 0 >"$toy/main.sleep"
    kill -KILL "$first"
    wait "$first" 2>/dev/null
    got=0
    wait "$second" || got=$?
    expect 'a waiting build says so, then builds' 0 "$tmp/second" \
        "waiting for another kernel build (process $first, tiny)" 'built in'
    [ ! -e "$tmp/out4/vmlinux" ]
    got=$?
    expect 'a killed build installs nothing' 0 "$tmp/first"
    # Its processes see within a second that their parent is gone.
    sleep 2
    build sandbox --out "$tmp/out6"
    [ -z "$(leftovers)" ]
    got=$?
    expect 'the next build clears what a killed one left' 0 "$log"
    rm "$toy/main.sleep"
}

test_terminated_build_cleans_up() {
    echo 30 >"$toy/main.sleep"
    MOTE_CACHE=$tmp/cache MOTE_LINUX_SRC=$toy "$kit/build.sh" tiny \
        --out "$tmp/out7" >"$tmp/first" 2>&1 &
    first=$!
    until grep -qs 'CC  ' "$tmp"/cache/kernel/scratch.*/log; do
        sleep 0.1
    done
    kill -TERM "$first"
    got=0
    wait "$first" || got=$?
    expect 'a terminated build stops' 143 "$tmp/first"
    [ -z "$(leftovers)" ]
    got=$?
    expect 'and leaves no scratch' 0 "$tmp/first"
    rm "$toy/main.sleep"
}

test_bad_input() {
    build
    expect 'no flavour' 1 "$log" 'no flavour given'
    build huge
    expect 'an unknown flavour is named' 1 "$log" 'huge: neither'
    src=$tmp/absent
    build tiny
    expect 'a missing source is named' 1 "$log" "$tmp/absent: cannot be read"
    src=$tmp
    build tiny
    expect 'a folder without Linux is named' 1 "$log" 'not a Linux source'
    src=$toy
    touch "$tmp/file"
    got=0
    MOTE_CACHE=$tmp/file MOTE_LINUX_SRC=$toy "$kit/build.sh" tiny \
        >"$log" 2>&1 || got=$?
    expect 'a cache that cannot be made is named' 1 "$log" \
        "$tmp/file/kernel: cannot be created"
    build tiny --out "$tmp/file"
    expect 'an output that cannot be made is named' 1 "$log" \
        "$tmp/file: cannot be created"
    mkdir "$tmp/bin"
    for t in sh dirname cat stat find sort sha256sum cut head gcc ld df awk \
        mkdir realpath uname make patch bison bc xz perl flock rm grep; do
        ln -s "$(command -v $t)" "$tmp/bin/$t"
    done
    got=0
    PATH=$tmp/bin MOTE_CACHE=$tmp/cache2 MOTE_LINUX_SRC=$toy \
        "$kit/build.sh" tiny >"$log" 2>&1 || got=$?
    expect 'a missing tool is named with its package' 1 "$log" \
        'sudo apt-get install flex'
}

make_toy
test_build_then_cached
test_key_follows_inputs
test_lost_option_is_named
test_patch_that_does_not_apply
test_bad_input
test_killed_and_waiting
test_terminated_build_cleans_up
