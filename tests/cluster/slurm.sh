#!/usr/bin/env bash
# A Slurm of one node on this machine, without accounting and without systemd, as root:
#   slurm.sh install        Debian's or Ubuntu's packages, where they are not there yet
#   slurm.sh start FOLDER   starts it; its settings, state and logs are in FOLDER
#   slurm.sh stop FOLDER    cancels its jobs and stops it; FOLDER stays
# What talks to it needs SLURM_CONF=FOLDER/slurm.conf, and FOLDER/bin first in its PATH. Each FOLDER
# has its own key and ports: several can run side by side, beside a Slurm of the machine's own, too.
set -euo pipefail

refuse() {
    echo "Slurm cannot be tried here: $1" >&2
    exit 3
}

# A process that has ended may stay as a zombie where nothing reaps it, as in a container.
alive() {
    [ -s "$FOLDER/$1.pid" ] && grep --quiet "^State:[[:space:]]*[^Z]" "/proc/$(cat "$FOLDER/$1.pid")/status" 2>/dev/null
}

dead() {
    ! alive "$1"
}

idle() {
    [ "$(sinfo --noheader --format %t)" = idle ]
}

no_jobs() {
    [ -z "$(squeue --noheader)" ]
}

until_true() {
    for _ in $(seq 300); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    echo "in vain for 30 s: $*; the logs are in $FOLDER" >&2
    return 1
}

install() {
    [ "$(id -u)" = 0 ] || refuse "it takes root."
    if [ -n "$(command -v slurmctld)" ] && [ -n "$(command -v munged)" ]; then return; fi
    [ -n "$(command -v apt-get)" ] || refuse "slurm-wlm and munge come by apt-get, which is not here."
    export DEBIAN_FRONTEND=noninteractive
    local get=(apt-get --quiet --quiet --option Dpkg::Use-Pty=0)
    "${get[@]}" update && "${get[@]}" install --yes --no-install-recommends slurm-wlm munge ||
        refuse "apt-get cannot install slurm-wlm and munge."
}

# More processors and memory than there may be, and a GPU that is none: all but the limits on time
# is bookkeeping.
write_configuration() {
    local host ports
    host=$(hostname -s)
    mapfile -t ports < <(python3 -c '
import socket
taken = [socket.create_server(("", 0)) for _ in range(2)]
print(*(server.getsockname()[1] for server in taken), sep="\n")')
    mkdir -p "$FOLDER/state" "$FOLDER/spool" "$FOLDER/bin"
    head --bytes 128 /dev/urandom >"$FOLDER/munge.key"
    chmod 600 "$FOLDER/munge.key"
    # Snakemake starts srun without the variables of Slurm.
    printf '#!/bin/sh\nSLURM_CONF=%q exec %q "$@"\n' "$SLURM_CONF" "$(command -v srun)" >"$FOLDER/bin/srun"
    chmod +x "$FOLDER/bin/srun"
    echo "Name=gpu Type=a100 File=/dev/null" >"$FOLDER/gres.conf"
    cat >"$FOLDER/slurm.conf" <<END
ClusterName=trial
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$FOLDER/munge.socket
CredType=cred/munge
StateSaveLocation=$FOLDER/state
SlurmdSpoolDir=$FOLDER/spool
SlurmctldPidFile=$FOLDER/slurmctld.pid
SlurmdPidFile=$FOLDER/slurmd.pid
SlurmctldLogFile=$FOLDER/slurmctld.log
SlurmdLogFile=$FOLDER/slurmd.log
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
MinJobAge=3600
GresTypes=gpu
KillWait=2
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=5
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 RealMemory=100000 Gres=gpu:a100:1 State=UNKNOWN
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
PartitionName=other Nodes=$host MaxTime=INFINITE State=UP
END
}

start() {
    [ -e "$FOLDER/slurm.conf" ] || write_configuration
    alive munged || munged --force --key-file "$FOLDER/munge.key" --socket "$FOLDER/munge.socket" \
        --pid-file "$FOLDER/munged.pid" --log-file "$FOLDER/munged.log" --seed-file "$FOLDER/munged.seed"
    alive slurmctld || slurmctld
    alive slurmd || slurmd
    until_true idle
}

stop() {
    if alive slurmctld; then
        scancel --full --user "$(id -un)" || true
        until_true no_jobs
    fi
    for daemon in slurmd slurmctld munged; do
        if alive "$daemon"; then
            kill "$(cat "$FOLDER/$daemon.pid")"
            until_true dead "$daemon"
        fi
    done
}

case "${1-} $#" in
"install 1") install ;;
"start 2" | "stop 2")
    FOLDER=$(realpath --canonicalize-missing "$2")
    export SLURM_CONF=$FOLDER/slurm.conf
    "$1"
    ;;
*)
    sed --quiet '2,/^set/{s/^# //p}' "$0" >&2
    exit 2
    ;;
esac
