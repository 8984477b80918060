#!/usr/bin/env bash
# source_archive.sh VERSION FILE: writes HEAD's files to FILE, a .tar.gz with the folder slotwise-VERSION. The same
# commit gives the same bytes: git sorts the files, and gives all of them the commit's time.
set -euo pipefail

version=$1 file=$2
git -c tar.umask=0022 archive --format=tar --prefix="slotwise-$version/" HEAD | gzip -n -9 >"$file"
