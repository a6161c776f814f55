# Machines for tests that need several: namespaces with a network, a mount table and a host name of their own.
# Sourced by scripts that have entered namespaces of their own with `enter_namespaces`, as root.

# enter_namespaces NAME SECONDS [ARGUMENT...]: runs scripts/NAME with `inside WORK ARGUMENT...` in namespaces of its
# own, and exits as it does. WORK is a new directory, which is removed afterwards.
enter_namespaces() {
    local name=$1 seconds=$2 status=0
    work=$(mktemp -d "/var/tmp/shoal-$name-XXXXXX")
    # The users of gateways read what is in it.
    chmod 755 "$work"
    # The end of the process namespace ends all daemons, and with them their mounts, a moment after a signal.
    trap 'rm -rf --one-file-system "$work" || { sleep 3; rm -rf --one-file-system "$work"; } || true' EXIT
    SHOAL=$program timeout --foreground --signal=KILL "$seconds" unshare --mount --net --pid --fork --kill-child \
        --mount-proc "scripts/$name" inside "$work" "${@:3}" &
    # For timeout(1) this signal is the end of the time.
    trap 'kill -ALRM "$!"' INT TERM HUP
    wait "$!" || status=$?
    [ "$status" != 137 ] || echo "$name: ended before it was done, after $SECONDS of $seconds seconds"
    exit "$status"
}

# --- checks

passed=0 failed=0

# check WHAT COMMAND...: counts whether the command succeeds.
check() {
    local what=$1 begun=$SECONDS
    shift
    if "$@" >"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $what$([ $((SECONDS - begun)) -lt 5 ] || echo " ($((SECONDS - begun)) s)")"
    else
        failed=$((failed + 1))
        echo "FAILED  $what: $*"
        tail -20 "$work/out"
    fi
}

# What has to succeed for any check to make sense.
must() {
    "$@" >"$work/out" 2>&1 || { echo "${0##*/}: $* failed:"; tail -40 "$work/out"; exit 1; }
}

# within SECONDS COMMAND...: waits until the command succeeds.
within() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$until" ] || return 1
        sleep 0.2
    done
}

not() { ! "$@"; }

# The last line of a script: how many checks passed and failed, and whether all passed.
all_passed() {
    echo
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}

# --- machines. `address` is set by the script: by machine, in one network of 24 bits.

declare -A holder server

# on MACHINE COMMAND...: a command on a machine.
on() {
    nsenter --target "${holder[$1]}" --mount --net --uts -- timeout 300 "${@:2}"
}

# forever_on MACHINE COMMAND...: without a limit; to be run in the background, where $! is the command's process.
forever_on() {
    exec nsenter --target "${holder[$1]}" --mount --net --uts -- "${@:2}"
}

# Empty directories that the other machines do not see.
private_directories() {
    local directory
    for directory in "$@"; do
        mkdir -p "$directory"
        mount -t tmpfs none "$directory"
    done
}

# start_network ADDRESS: the network of the machines, in which the script itself has this address.
start_network() {
    ip link set lo up
    ip link add br0 type bridge
    ip address add "$1/24" dev br0
    ip link set br0 up
}

# start_machine NAME DIRECTORY...: a machine with these private directories.
start_machine() {
    local name=$1
    unshare --mount --net --uts sleep infinity </dev/null >/dev/null 2>&1 &
    holder[$name]=$!
    within 10 not test "/proc/${holder[$name]}/ns/net" -ef /proc/self/ns/net || return 1
    within 10 not test "/proc/${holder[$name]}/ns/mnt" -ef /proc/self/ns/mnt || return 1
    within 10 not test "/proc/${holder[$name]}/ns/uts" -ef /proc/self/ns/uts || return 1
    ip link add "$name" type veth peer name eth0 netns "${holder[$name]}" || return 1
    ip link set "$name" master br0 up
    on "$name" bash -ec "
        $(declare -f private_directories)
        hostname $name
        ip link set lo up
        ip address add ${address[$name]}/24 dev eth0
        ip link set eth0 up
        private_directories ${*:2}
    "
}

port_is_open() {
    (: <"/dev/tcp/${address[$1]}/$2") 2>/dev/null
}

# end MACHINE PIDFILE SIGNAL: ends a daemon of a machine, and waits for its end.
end() {
    local process
    process=$(on "$1" cat "$2")
    kill "-$3" "$process"
    within 60 not kill -0 "$process" 2>/dev/null
}

# name_machines: /etc/hosts has the names of all.
name_machines() {
    local machine
    { cat /etc/hosts; for machine in "${!address[@]}"; do echo "${address[$machine]} $machine"; done; } >"$work/hosts"
    mount --bind "$work/hosts" /etc/hosts
}

# --- a cluster of Shoal on the machines in `nodes`, of which the first is node1

# shoal MACHINE ARGUMENT...: a command of Shoal on a machine.
shoal() {
    on "$1" env "SHOAL_DATA=$work/$1/shoal" "HOME=$work/$1" "$program" "${@:2}"
}

# A directory of a machine, as seen from here.
seen() { echo "/proc/${holder[$1]}/root$2"; }

start_server() {
    forever_on "$1" env "SHOAL_DATA=$work/$1/shoal" "HOME=$work/$1" "$program" server >>"$work/$1/log" 2>&1 &
    server[$1]=$!
    within 60 test -S "$work/$1/shoal/control.sock"
}

cluster_starts() {
    local node token
    for node in "${nodes[@]}"; do
        local own=(--name "$node" --listen "${address[$node]}" --address "${address[$node]}" --no-start)
        if [ "$node" = node1 ]; then
            token=$(shoal node1 cluster init "${own[@]}" | grep -o 'shoal1/[^ ]*' | head -1)
        else
            shoal "$node" peer join "$token" "${own[@]}" || return 1
        fi
        start_server "$node" || return 1
    done
}

# --- a load that is checked

# content N: what the file of this number holds: inline in the metadata, or in blocks.
content() {
    seq "$1" $(($1 + ($1 % 50 == 0 ? 600000 : 2000)))
}

# writes DIRECTORY LOG [PAUSE]: until LOG.enough is there; the numbers of files on disk are listed in LOG.written.
# PAUSE is in seconds, after each file.
writes() {
    local n=0
    until [ -e "$2.enough" ]; do
        n=$((n + 1))
        content "$n" >"$1/new" && sync "$1/new" && mv "$1/new" "$1/f$n" || { echo "write $n failed"; return 1; }
        echo "$n" >>"$2.written"
        [ -z "${3:-}" ] || sleep "$3"
    done
}

# all_written DIRECTORY LOG [LAST]: all of them, or the last ones, are whole.
all_written() {
    local n
    while read -r n; do
        content "$n" | cmp - "$1/f$n" || return 1
    done < <(tail -n "${3:-+1}" "$2.written")
}

# --- GlusterFS

gluster_directories=(/var/lib/glusterd /run/gluster /var/log/glusterfs)

# gluster ARGUMENT...: its command; what it says is of interest only if it fails.
gluster() {
    command gluster --mode=script "$@" >>"$work/gluster.log" 2>&1 || { tail -20 "$work/gluster.log"; return 1; }
}

gluster_on() {
    on "$1" gluster --mode=script "${@:2}"
}

all_connected() {
    [ "$(gluster_on node1 pool list | grep -c Connected)" = ${#nodes[@]} ]
}

# gluster_pool_starts: a pool of the machines in `nodes`, of which the first is node1.
gluster_pool_starts() {
    local node
    for node in "${nodes[@]}"; do
        on "$node" glusterd --pid-file="$work/$node/glusterd.pid" || return 1
    done
    within 60 gluster_on node1 pool list || return 1
    for node in "${nodes[@]:1}"; do
        gluster_on node1 peer probe "$node" || return 1
    done
    within 60 all_connected
}

# --- users, and Samba with the file of dist/

# The password of a user of Samba is the user's name. The first entry of a name or a number counts.
make_users() {
    local user
    for user in alice:2001 bob:2002; do
        echo "${user%:*}:x:${user#*:}:${user#*:}::/nonexistent:/usr/sbin/nologin" >>"$work/passwd"
        echo "${user%:*}:x:${user#*:}:" >>"$work/group"
    done
    cat /etc/passwd >>"$work/passwd"
    cat /etc/group >>"$work/group"
    mount --bind "$work/passwd" /etc/passwd
    mount --bind "$work/group" /etc/group
}

samba_directories=(/run /srv /var/lib/samba /var/cache/samba /var/log/samba)

start_samba() {
    on "$1" mkdir -p /run/samba /var/lib/samba/private
    on "$1" smbd --daemon --configfile="$PWD/dist/samba/smb.conf"
    within 60 port_is_open "$1" 445
}

stop_samba() { end "$1" /run/samba/smbd.pid "${2:-TERM}"; }

add_samba_users() {
    local user
    for user in alice bob; do
        on "$1" sh -c "printf '$user\n$user\n' | smbpasswd -c $PWD/dist/samba/smb.conf -a -s $user" || return 1
    done
}

# smb MACHINE COMMANDS [USER]: commands of smbclient. It exits with 0 after some that failed, but says so.
smb() {
    local user=${3:-alice}
    timeout 300 smbclient "//${address[$1]}/data" -U "$user%$user" -c "$2" >"$work/smb" 2>&1 || { cat "$work/smb"; return 1; }
    cat "$work/smb"
    ! grep -q 'NT_STATUS_' "$work/smb"
}
