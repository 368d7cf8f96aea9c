#!/bin/sh
# Writes timbrel_protos/ from the .proto files.
#
# Stubs refuse to load under a grpcio or protobuf older than their generator's, so the generator is held at an older
# version than the newest. PYTHON names the interpreter that has it (default: python3).
set -eu
cd "$(dirname "$0")"
python="${PYTHON:-python3}"
pinned=1.80.0
found=$("$python" -c 'from importlib.metadata import version; print(version("grpcio-tools"))' 2>/dev/null || echo none)
if [ "$found" != "$pinned" ]; then
    echo "generate.sh: needs grpcio-tools $pinned, found $found: $python -m pip install grpcio-tools==$pinned" >&2
    exit 2
fi
"$python" -m grpc_tools.protoc -Itimbrel_protos=. -Ithird_party \
    --python_out=. --pyi_out=. --grpc_python_out=. timbrel/v1/*.proto inference/*.proto
for folder in . timbrel timbrel/v1 inference; do
    touch "timbrel_protos/$folder/__init__.py"
done
