#!/usr/bin/env bash
# debian_package.sh BUILD VERSION FOLDER: makes FOLDER/slotwise_VERSION_ARCHITECTURE.deb of the programs in BUILD, for
# the distribution of this machine. It has the server, slotwise-launch and slotwise-ctl, and the unit for systemd, which
# nothing enables or starts: there is no configuration yet. Its files have the time SOURCE_DATE_EPOCH, so that the same
# programs give the same package.
set -euo pipefail

build=$1 version=$2 folder=$3
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
: "${SOURCE_DATE_EPOCH:?must be the time that files get}"
export SOURCE_DATE_EPOCH
architecture=$(dpkg --print-architecture)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/debian/slotwise
umask 022
for program in server/slotwise-server server/launch/slotwise-launch client/ctl/slotwise-ctl; do
  install -D -m 755 -s "$build/$program" "$root/usr/bin/${program##*/}"
done
documents=$root/usr/share/doc/slotwise
install -D -m 644 "$source/LICENSE" "$documents/copyright"
gzip -n -9 <"$source/CHANGELOG.md" >"$documents/changelog.gz"
install -m 644 "$source/docs/operations.md" "$source/docs/durability.md" "$source/docs/config.md" "$documents/"
install -D -m 644 -t "$root/lib/systemd/system" "$source/deploy/systemd/slotwise-server.service"

# dpkg-shlibdeps wants to stand in a source package that was built.
mkdir "$root/DEBIAN"
printf 'Source: slotwise\n\nPackage: slotwise\nArchitecture: any\n' >"$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O "$root"/usr/bin/* | sed -n 's/^shlibs:Depends=//p')
[[ -n $libraries ]] || { echo "debian_package.sh: dpkg-shlibdeps found no library" >&2 && exit 1; }

(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
cat >"$root/DEBIAN/control" <<END
Package: slotwise
Version: $version
Architecture: $architecture
Maintainer: Slotwise <slotwise@localhost>
Installed-Size: $(du --apparent-size -sk "$root" | cut -f 1)
Depends: $libraries, openmpi-bin
Section: science
Priority: optional
Description: multi-GPU embedding parameter server for recommendation models
 Holds embedding rows in concurrent hash tables, one slice a rank, and serves
 lookups and gradient pushes to trainers. This package has the server for
 the CPU, slotwise-launch, which starts it again, and slotwise-ctl. Its unit
 for systemd, slotwise-server.service, is not enabled by itself.
END
# dpkg-deb by itself leaves times that are older.
find "$root" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$folder"
dpkg-deb --root-owner-group -Zxz --build "$root" "$folder/slotwise_${version}_$architecture.deb" >/dev/null
