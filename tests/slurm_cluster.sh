# shellcheck shell=bash
# A real Slurm on this machine, for tests: munged, a controller, and a daemon for each of two nodes
# of one core, all in a folder of their own on ports of their own. Sourced.
#
#   source tests/slurm_cluster.sh
#   start_slurm "$folder" && trap stop_slurm EXIT

slurm_pids=()

slurm_daemon() { # slurm_daemon LOG COMMAND...: starts it and keeps its id
  local log=$1
  shift
  "$@" > "$log" 2>&1 &
  slurm_pids+=($!)
}

stop_slurm() {
  [ ${#slurm_pids[@]} = 0 ] || kill "${slurm_pids[@]}" 2> /dev/null || true
  wait "${slurm_pids[@]}" 2> /dev/null || true
  slurm_pids=()
}

# start_slurm FOLDER: returns when both nodes are idle; fails with their logs after 20 s.
start_slurm() {
  local folder=$1 host user port
  host=$(hostname -s)
  user=$(id -un)
  port=$((20000 + $$ % 20000))
  mkdir -p "$folder/state"
  chmod 755 "$folder"
  dd if=/dev/urandom of="$folder/munge.key" bs=128 count=1 status=none
  chmod 400 "$folder/munge.key"
  cat > "$folder/slurm.conf" <<CONF
ClusterName=coppice
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_min_interval=100000
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=10 State=UP
CONF
  export SLURM_CONF=$folder/slurm.conf
  PATH=$PATH:/usr/sbin
  slurm_daemon "$folder/munged.log" munged --foreground --force --key-file="$folder/munge.key" \
    --socket="$folder/munge.socket" --pid-file="$folder/munge.pid" \
    --seed-file="$folder/munge.seed" --log-file="$folder/munged.log"
  local waited=0
  until [ -S "$folder/munge.socket" ]; do
    sleep 0.1
    waited=$((waited + 1))
    [ $waited -lt 100 ] || { cat "$folder"/*.log; return 1; }
  done
  slurm_daemon "$folder/slurmctld.log" slurmctld -D -c -f "$SLURM_CONF"
  slurm_daemon "$folder/slurmd-n1.log" slurmd -D -c -N n1 -f "$SLURM_CONF"
  slurm_daemon "$folder/slurmd-n2.log" slurmd -D -c -N n2 -f "$SLURM_CONF"
  waited=0
  until [ "$(sinfo --noheader --Node --states=idle --format=%N 2> /dev/null | wc -l)" = 2 ]; do
    sleep 0.2
    waited=$((waited + 1))
    [ $waited -lt 100 ] || { cat "$folder"/*.log; return 1; }
  done
}
