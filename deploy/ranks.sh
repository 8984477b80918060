# shellcheck shell=bash
# Starts slotwise-server's ranks and ends them well; for entrypoint.sh and mpirun/launch.sh to source.
#
# An mpirun that gets SIGTERM exits 1 and kills its ranks soon, whatever they are at. A signal to any one rank lets all
# of them finish what they were asked, and then mpirun exits 0. So mpirun gets a session of its own, where a terminal's
# Ctrl-C does not reach it, and SIGTERM and SIGINT to the sourcing script go to a rank.

# Runs mpirun with the arguments, in which the program is named $1, and returns its exit code.
run_ranks() { # PROGRAM MPIRUN-ARGUMENT...
  program=$(basename "$1")
  shift
  local code status=0
  mpirun='' told=''
  trap 'told=1 && stop_ranks' TERM INT
  setsid mpirun "$@" </dev/null &
  mpirun=$!
  [[ -z $told ]] || stop_ranks
  until # a signal ends a wait too
    told='' code=0
    wait "$mpirun" || code=$?
    ((code == 127)) || status=$code # 127: it was waited for already
    [[ -z $told ]]
  do :; done
  trap - TERM INT
  return "$status"
}

# Asks a rank on this machine to stop, and so all. There is none yet if mpirun is still starting them. If after
# $patience seconds there is none, because all are on other machines, mpirun's way has to do.
patience=60
stop_ranks() {
  [[ -n $mpirun ]] || return 0
  local since=$SECONDS
  while ((SECONDS - since < patience)); do
    kill -0 "$mpirun" 2>/dev/null || return 0
    ! stop_one_rank || return 0
    sleep 0.05
  done
  kill -TERM "$mpirun" || true
}

stop_one_rank() {
  local process name
  while read -r process; do
    read -r name <"$process/comm" || continue
    [[ $name == "${program:0:15}" ]] || continue # the kernel keeps 15 characters
    ! hears_sigterm "$process" || ! kill -TERM "${process#/proc/}" || return 0
  done < <(children_of_mpirun) 2>/dev/null
  return 1
}

children_of_mpirun() { # as /proc/PID, a line each; without procps, which container images leave out
  grep -ls "^PPid:[[:space:]]*$mpirun\$" /proc/[0-9]*/status | sed 's|/status$||'
}

hears_sigterm() { # /proc/PID: whether the process holds or handles SIGTERM; one that has only just begun would die of it
  local what signals
  while read -r what signals; do
    [[ $what == SigCgt: ]] || ((!(0x$signals & 1 << 13))) || continue # a thread that starts another blocks all for a moment
    ((!(0x$signals & 1 << 14))) || return 0                           # bit 14 is signal 15
  done < <(grep '^Sig\(Blk\|Cgt\):' "$1/status")
  return 1
}
