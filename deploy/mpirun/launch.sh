#!/usr/bin/env bash
# Starts slotwise-server on the hosts of a hostfile; --help tells how.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/../ranks.sh"

help() {
  cat <<'END_OF_HELP'
launch.sh [OPTIONS] [-- FLAG...]: run slotwise-server on every host of a hostfile, until SIGTERM or Ctrl-C

  --hostfile FILE  lines of "HOST slots=RANKS", one rank a GPU (hosts.txt)
  --server PATH    slotwise-server, at this path on every host ($SLOTWISE_SERVER, or the one on PATH)
  --config FILE    the server's configuration, at this path on every host
  --data FOLDER    where the server keeps its state, at this path on every host: slotwise-launch then holds the
                   folder and starts ranks again that end unasked (docs/durability.md)
  --supervisor P   slotwise-launch, at this path on every host ($SLOTWISE_LAUNCH, or the one on PATH)
  --check          only look whether every host is ready
  --help           this

What follows -- goes to slotwise-server as it is. Every host is looked at first: ssh without a password, the same Open
MPI and the same server, the configuration, GPUs for its ranks. Over several hosts the server has to listen on more than
the loopback interface: listen: "0.0.0.0:7070" in the configuration, with TLS and principals, or, on a private network,
with insecure: true (docs/security.md).

Run it on one of the hosts of the file, so that a stop can reach a rank: then all finish what they were asked, and it
exits 0. Open MPI's own settings pass through its variables; root needs OMPI_ALLOW_RUN_AS_ROOT=1 and
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1. Hosts with several networks want OMPI_MCA_btl_tcp_if_include=eth1 and
OMPI_MCA_oob_tcp_if_include=eth1, where eth1 is the ranks' own: Open MPI then connects by no other. It listens at all
addresses all the same, so a firewall has to keep others out (docs/config.md).
END_OF_HELP
}

fail() {
  echo "launch.sh: $*" >&2
  exit 1
}

read_hostfile() { # sets hosts and slots
  hosts=() slots=()
  local line number=0
  while read -r line || [[ -n $line ]]; do
    number=$((number + 1))
    line=${line%%#*}
    [[ -n ${line//[[:space:]]/} ]] || continue
    [[ $line =~ ^[[:space:]]*([^[:space:]=]+)[[:space:]]+slots=([1-9][0-9]{0,3})[[:space:]]*$ ]] ||
      fail "$hostfile:$number: \"$line\" is not HOST slots=RANKS"
    hosts+=("${BASH_REMATCH[1]}")
    slots+=("${BASH_REMATCH[2]}")
  done <"$hostfile"
  ((${#hosts[@]})) || fail "$hostfile names no host"
}

# Runs on a host: says what keeps it from running its ranks, if anything.
examine() { # SERVER CONFIG RANKS OPEN-MPI VERSION DATA SUPERVISOR FLAG...
  local mpi version gpus
  mpi=$(mpirun --version 2>/dev/null | head -n 1)
  [[ -n $mpi ]] || { echo "has no mpirun on PATH" && return 1; }
  [[ $mpi == "$4" ]] || { echo "has $mpi, but $4 is on the launching machine" && return 1; }
  [[ -x $1 ]] || { echo "has no program $1" && return 1; }
  version=$("$1" --version 2>&1) || { echo "cannot run $1: $version" && return 1; }
  [[ $version == "$5" ]] || { echo "has $version, but $5 is on the launching machine" && return 1; }
  [[ -z $2 ]] || version=$("$1" --config "$2" --check-config ${6:+--data "$6"} "${@:8}" 2>&1) ||
    { echo "$version" && return 1; }
  [[ -z $6 || -d $6 ]] || { echo "has no folder $6" && return 1; }
  [[ -z $6 || -w $6 ]] || { echo "may not write to the folder $6" && return 1; }
  [[ -z $7 || -x $7 ]] || { echo "has no program $7" && return 1; }
  gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ') || gpus=0
  ((gpus == 0 || $3 <= gpus)) || { echo "has $gpus GPU(s) for $3 ranks: lower its slots" && return 1; }
}

is_here() {
  case $1 in
    localhost | 127.* | "$(uname -n)" | "$(hostname -f 2>/dev/null)") return 0 ;;
    *) return 1 ;;
  esac
}

look_at() { # HOST RANKS FLAG...
  local script said
  script="$(declare -f examine); examine $(printf '%q ' "$server" "$config" "$2" "$mpi" "$version" "$data" "$supervisor" "${@:3}")"
  if is_here "$1"; then
    said=$(bash -s <<<"$script" 2>&1) || fail "$1: $said"
  else
    said=$(ssh -o BatchMode=yes -o ConnectTimeout=10 "$1" bash -s <<<"$script" 2>&1) || fail "$1: $said"
  fi
}

hostfile=hosts.txt
server=${SLOTWISE_SERVER:-slotwise-server}
config=''
data=''
supervisor=''
check=''
while (($#)); do
  case $1 in
    --hostfile | --server | --config | --data | --supervisor)
      [[ -n ${2:-} ]] || fail "$1 needs a value"
      printf -v "${1#--}" %s "$2"
      shift
      ;;
    --check) check=1 ;;
    -h | --help) help && exit ;;
    --) shift && break ;;
    *) fail "there is no option $1: see launch.sh --help" ;;
  esac
  shift
done

[[ -r $hostfile ]] || fail "cannot read the hostfile $hostfile"
program=$(command -v "$server") || fail "there is no program $server: name it with --server"
server=$(realpath "$program")
[[ -z $config ]] || config=$(realpath "$config")
if [[ -n $data ]]; then
  mkdir -p "$data" || fail "there can be no folder $data"
  data=$(realpath "$data")
  supervisor=${supervisor:-${SLOTWISE_LAUNCH:-slotwise-launch}}
  program=$(command -v "$supervisor") || fail "there is no program $supervisor: name it with --supervisor"
  supervisor=$(realpath "$program")
elif [[ -n $supervisor ]]; then
  fail "--supervisor is for --data"
fi
mpi=$(mpirun --version 2>/dev/null | head -n 1) || fail "there is no mpirun on PATH"
version=$("$server" --version) || fail "cannot run $server"

read_hostfile
ranks=0
patience=2
for i in "${!hosts[@]}"; do
  look_at "${hosts[i]}" "${slots[i]}" "$@"
  ranks=$((ranks + slots[i]))
  ! is_here "${hosts[i]}" || patience=60 # a stop has a rank of this machine to reach, once it is there
done
echo "launch.sh: ${#hosts[@]} host(s) are ready for $ranks rank(s) of $version" >&2
[[ -z $check ]] || exit 0

options=(--map-by slot) # host after host, so that a host's first rank takes its first GPU and port
options+=(--bind-to none) # a rank's threads share the machine; the server divides it by its ranks
[[ -z ${LD_LIBRARY_PATH:-} ]] || options+=(-x LD_LIBRARY_PATH)
command=("$server" ${config:+--config "$config"} "$@")
if [[ -n $data ]]; then
  exec "$supervisor" --data "$data" --hostfile "$hostfile" -n "$ranks" "${options[@]/#/--mpirun-arg=}" -- "${command[@]}"
fi
run_ranks "$server" --hostfile "$hostfile" -n "$ranks" "${options[@]}" "${command[@]}"
