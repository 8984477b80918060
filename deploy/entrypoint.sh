#!/usr/bin/env bash
# What the server's container runs; `deploy/Dockerfile` names it. As a plain process it does the same.
#
#   entrypoint.sh [FLAG...]      slotwise-server with these flags, one rank a GPU, or one rank where there is none
#   entrypoint.sh PROGRAM ...    that program instead
#
#   SLOTWISE_RANKS     how many ranks there shall be
#   SLOTWISE_SERVER    the server's program (slotwise-server)
#   SLOTWISE_DATA      the data folder; slotwise-launch then holds it, and the container's restart policy starts again
#   SLOTWISE_LAUNCH    slotwise-launch's program (slotwise-launch)
#
# SIGTERM (`docker stop`) and SIGINT let all ranks finish what they were asked; it then exits 0.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/ranks.sh"

count_gpus() {
  local gpus
  gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ') || gpus=1
  echo "$gpus"
}

[[ ${1:--} == -* ]] || exec "$@"
server=${SLOTWISE_SERVER:-slotwise-server}
for flag in "$@"; do
  case $flag in
    -h | --help | --version | --check-config) # answered once, not by every rank
      exec "$server" "$@" ${SLOTWISE_DATA:+--data "$SLOTWISE_DATA"} ;;
  esac
done
ranks=${SLOTWISE_RANKS:-$(count_gpus)}
[[ $ranks =~ ^[1-9][0-9]{0,3}$ ]] || {
  echo "entrypoint.sh: SLOTWISE_RANKS is \"$ranks\": must be a number above 0" >&2
  exit 1
}
options=(--oversubscribe --bind-to none)
if [[ -n ${SLOTWISE_DATA:-} ]]; then
  exec "${SLOTWISE_LAUNCH:-slotwise-launch}" --data "$SLOTWISE_DATA" --restarts 0 -n "$ranks" \
    "${options[@]/#/--mpirun-arg=}" -- "$server" "$@"
fi
run_ranks "$server" -n "$ranks" "${options[@]}" "$server" "$@"
