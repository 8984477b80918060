#!/usr/bin/env bash
# Writes tests/slotwise_proto/*_pb2.py{,i} from proto/: committed, so that installing the client needs no protoc.
#
#   client/python/generate.sh            write them
#   client/python/generate.sh --check    change nothing; fail if they are not what proto/ says
#
# protoc 3.21 on purpose: what it writes loads in every protobuf from 3.20 on; what newer ones write does not.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
proto="$here/../../proto"
target="$here/tests/slotwise_proto"

fail() { echo "generate.sh: $*" >&2; exit 1; }

[[ $# -eq 0 || ( $# -eq 1 && $1 == --check ) ]] || fail "usage: generate.sh [--check]"
command -v protoc >/dev/null || fail "protoc is missing: apt-get install protobuf-compiler"
version=$(protoc --version)
[[ $version == "libprotoc 3.21."* ]] || fail "protoc 3.21 is needed, this is '$version'"

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
protoc -I"$proto" --python_out="$fresh" --pyi_out="$fresh" slotwise/v1/{admin,data,embedding,errors,rows}.proto
# protoc writes imports by the .proto's own path; inside the package they are neighbours.
sed -i 's/^from slotwise\.v1 import/from slotwise_proto import/' "$fresh"/slotwise/v1/*_pb2.py*
# Nor are its type stubs what mypy --strict, which reads them for whoever imports us, likes.
sed -i '1i # mypy: ignore-errors' "$fresh"/slotwise/v1/*_pb2.pyi

for file in "$fresh"/slotwise/v1/*; do
  committed="$target/$(basename "$file")"
  if [[ ${1:-} != --check ]]; then
    install -m 644 "$file" "$committed"
  elif ! cmp -s "$file" "$committed"; then
    fail "$(basename "$committed") is not what proto/ says; run client/python/generate.sh and commit the result"
  fi
done
