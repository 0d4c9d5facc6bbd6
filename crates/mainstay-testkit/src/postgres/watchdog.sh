# Arguments: a server's folder, and the seconds it may stay without users.
folder=$1
linger=$2
home=${folder%/*}
trap '' HUP INT TERM

unused() {
    flock --exclusive --nonblock "$folder/users" true
}

# The pid only counts while it belongs to a process on this data folder: pids are used again.
postmaster() {
    read -r pid < "$folder/data/postmaster.pid" && tr '\0' '\n' < "/proc/$pid/cmdline" | grep -qxF "$folder/data"
}

# Nothing in there is worth saving: an immediate stop, and SIGKILL for a server that does not listen.
stop() {
    tries=0
    while postmaster; do
        if [ $tries -lt 50 ]; then kill -QUIT "$pid"; else kill -KILL "$pid"; fi
        tries=$((tries + 1))
        sleep 0.1
    done
}

# A killed server leaves a shared memory segment behind; it is ours if the pid of the pid file made it.
release_segment() {
    pid_file=$folder/data/postmaster.pid
    [ -e "$pid_file" ] || return
    id=$(awk -v pid="$(sed -n 1p "$pid_file")" -v segment="$(sed -n 7p "$pid_file")" \
        'BEGIN { split(segment, part) } $2 == part[2] && $5 == pid && $7 == 0 { print $2 }' /proc/sysvipc/shm)
    [ -z "$id" ] || ipcrm -m "$id"
}

idle=0
while sleep 1; do
    [ -d "$folder" ] || break
    if unused; then idle=$((idle + 1)); else idle=0; fi
    [ $idle -gt "$linger" ] || continue
    # Under the lock of the house nobody can join while we look a last time and remove.
    exec 9>> "$home/lock"
    flock 9
    if unused; then
        stop
        release_segment
        rm -rf "$folder"
        break
    fi
    exec 9>&-
    idle=0
done

# The last one out: the record and the locks go too.
[ -d "$home" ] || exit 0
exec 9>> "$home/lock" && flock 9 || exit 0
# Not the lock of that folder any more: others have removed and made it anew meanwhile.
[ "$home/lock" -ef /proc/self/fd/9 ] || exit 0
grep -qxF "$folder" "$home/shared" && rm -f "$home/shared"
set -- "$home"/server-*
[ -d "$1" ] || rm -rf "$home"
