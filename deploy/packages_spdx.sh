#!/usr/bin/env bash
# Writes what an image is made of to standard output: every Debian package and its version, as dpkg knows them, and
# Slotwise itself, as an SPDX 2.3 document in tag-value form (https://spdx.github.io/spdx-spec/v2.3/).
#
#   packages_spdx.sh NAME VERSION
set -euo pipefail
name=${1:?a name} version=${2:?a version}

package() { # ID NAME VERSION PURL LICENCE
  printf '\nPackageName: %s\nSPDXID: SPDXRef-%s\nPackageVersion: %s\nPackageDownloadLocation: NOASSERTION\n' "$2" "$1" "$3"
  printf 'FilesAnalyzed: false\nPackageLicenseConcluded: NOASSERTION\nPackageLicenseDeclared: %s\n' "$5"
  printf 'PackageCopyrightText: NOASSERTION\nExternalRef: PACKAGE-MANAGER purl %s\n' "$4"
}

packages=$(dpkg-query -W -f '${Package} ${Version} ${Architecture} ${db:Status-Abbrev}\n' | sed -n 's/ ii *$//p' | LC_ALL=C sort)
system=$(sed -n "s/^ID=//p" /etc/os-release)
digest=$(sha256sum <<<"$name $version $packages" | cut -c -32)
cat <<TEXT
SPDXVersion: SPDX-2.3
DataLicense: CC0-1.0
SPDXID: SPDXRef-DOCUMENT
DocumentName: $name-$version
DocumentNamespace: urn:slotwise:$name:$version:$digest
Creator: Tool: slotwise-packages-spdx
Created: $(date -u ${SOURCE_DATE_EPOCH:+-d "@$SOURCE_DATE_EPOCH"} +%Y-%m-%dT%H:%M:%SZ)
TEXT
package Slotwise slotwise "$version" "pkg:generic/slotwise@$version" Apache-2.0
number=0
while read -r its its_version architecture; do
  number=$((number + 1))
  package "Package-$number" "$its" "$its_version" "pkg:deb/$system/${its//+/%2B}@${its_version//+/%2B}?arch=$architecture" NOASSERTION
done <<<"$packages"
printf '\nRelationship: SPDXRef-DOCUMENT DESCRIBES SPDXRef-Slotwise\n'
for ((i = 1; i <= number; i++)); do echo "Relationship: SPDXRef-Slotwise DEPENDS_ON SPDXRef-Package-$i"; done
