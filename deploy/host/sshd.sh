#!/usr/bin/env bash
# What a container of the image `host` runs: sshd at port 2222, as the user that the container runs as. The mpirun of
# another container starts ranks here through it. The folder ~/.ssh has authorized_keys, and where mpirun runs also
# id_rsa; the MPI operator of Kubernetes mounts both there.
#
#   sshd.sh [OPTION...]     the options go to sshd
#
# The host key is made here, in /tmp, so that no two containers have one in common and no image has one.
set -euo pipefail
folder=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
keys=$(mktemp -d)
ssh-keygen -q -t ed25519 -N '' -C '' -f "$keys/host_key"
exec /usr/sbin/sshd -D -e -f "$folder/sshd_config" -h "$keys/host_key" "$@"
