#!/bin/sh
# Writes a descriptor image of the .proto files: image.sh OUT.binpb. It is what `buf` lints and compares.
#
# protos/timbrel.binpb is such an image, committed: what was promised to callers. `buf breaking` compares the files
# with it. Write it anew when the promise is made again, not to silence the comparison.
# PYTHON names an interpreter that has grpcio-tools (default: python3).
set -eu
case "${1:-}" in
"" | -*) echo "usage: image.sh OUT.binpb" >&2; exit 2 ;;
/*) out=$1 ;;
*) out=$PWD/$1 ;;
esac
cd "$(dirname "$0")"
python="${PYTHON:-python3}"
"$python" -m grpc_tools.protoc -I. -Ithird_party --include_imports --include_source_info \
    --descriptor_set_out="$out" timbrel/v1/*.proto inference/*.proto
