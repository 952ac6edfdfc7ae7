#!/bin/sh
# Makes samples.bin, eh_frame.bin and functions.txt anew. Needs gcc-aarch64-linux-gnu,
# libc6-dev-arm64-cross and qemu-user (Debian's names). qemu's CPU signs return addresses, as real
# ones with pointer authentication do.
set -eu
cd "$(dirname "$0")"
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
aarch64-linux-gnu-gcc -O2 -static -mbranch-protection=standard -fno-omit-frame-pointer \
    -o "$build/record" record.c
qemu-aarch64 -cpu max "$build/record" "$build/samples.bin"
aarch64-linux-gnu-objcopy -O binary --only-section=.eh_frame "$build/record" "$build/eh_frame.bin"
# Addresses: of the section, and of the code, the stubs before it included.
aarch64-linux-gnu-readelf -SW "$build/record" |
    sed -n 's/.* \(\.eh_frame\|\.text\|\.plt\) *PROGBITS *\([0-9a-f]*\) [0-9a-f]* \([0-9a-f]*\) .*/section \1 \2 \3/p' \
        > "$build/functions.txt"
aarch64-linux-gnu-nm -S --defined-only "$build/record" |
    sed -nE 's/^([0-9a-f]*) ([0-9a-f]*) [Tt] (main|leaf|small|recurse|variable|large|through_libc|format|compare|__libc_start_call_main)$/\1 \2 \3/p' \
        >> "$build/functions.txt"
gzip -n9 "$build/samples.bin"
mv "$build/samples.bin.gz" "$build/eh_frame.bin" "$build/functions.txt" .
