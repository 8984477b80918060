#!/bin/sh
# Runs one rank of a server under mpirun, and leaves behind what a test wants to know of it, in the folder $1:
# rank.N.pid, rank.N.log and, in the end, rank.N.exit. mpirun's own exit status says little of its ranks'.
folder=$1
shift
rank=${OMPI_COMM_WORLD_RANK:-0}
"$@" 2>"$folder/rank.$rank.log" &
pid=$!
trap 'kill -TERM $pid' TERM # what mpirun sends
echo $pid >"$folder/rank.$rank.pid"
wait $pid
status=$?
while kill -0 $pid 2>/dev/null; do # a signal ended the waiting, not the rank
  wait $pid
  status=$?
done
echo $status >"$folder/$rank.exit.new" && mv "$folder/$rank.exit.new" "$folder/rank.$rank.exit"
exit $status
