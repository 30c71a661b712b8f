#!/bin/sh
# Two machines build some targets each; merged, that is what one machine builds for all.
#
#   sh examples/apart/build_apart.sh FOLDER
#
# The machines are folders of FOLDER here. On real ones, with the same compiler, the files of
# one are copied to the other before `offload-tool merge`.
set -eu
example=$(cd "$(dirname "$0")" && pwd)
folder=$1
scons=${SCONS:-scons}
merge=${OFFLOAD_TOOL:-offload-tool}

build() { # NAME TARGETS: a checkout called NAME, built for TARGETS
    mkdir -p "$folder/$1"
    cp -R "$example" "$folder/$1"
    echo "== $1 builds $2"
    (cd "$folder/$1/apart" && $scons -Q "OFFLOAD_ARCH=$2")
}

build there gfx90a,gfx942
build here gfx1100
build one gfx90a,gfx942,gfx1100
mkdir -p "$folder/merged"
for file in scale.hipfb libkernels.a shift.offload; do
    $merge merge "$folder/there/apart/$file" "$folder/here/apart/$file" -o "$folder/merged/$file"
    cmp "$folder/merged/$file" "$folder/one/apart/$file"
    echo "== $file: merged from two machines, equal to one machine's"
done
