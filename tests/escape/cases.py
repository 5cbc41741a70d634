"""The table of attacks and their controls, as probe arguments. {ws}, {home}, {out} are filled in."""

# name: (attack, control or None when the control is another row)
FILES = {
    "ssh key": (["read", "{home}/.ssh/id_ed25519", "{home}/.aws/credentials"], ["write", "{home}/own-file"]),
    "shadow": (["read", "/etc/shadow", "/etc/gshadow"], ["read", "/etc/passwd"]),
    "foreign file": (["read", "{ws}/foreign_secret"], ["read", "{ws}/README"]),
    "hidden env": (["read", "{ws}/.env", "{ws}/id_rsa"], ["read", "{ws}/.env.example"]),
    "hidden env listed": (["list", "{ws}", ".env"], ["list", "{ws}", ".env.example"]),
    "hidden env linked": (["hardlink", "{ws}/.env", "{ws}/a"], ["hardlink", "{ws}/README", "{ws}/README.2"]),
    "hidden env renamed": (["rename", "{ws}/.env", "{ws}/b"], ["rename", "{ws}/README.2", "{ws}/README.3"]),
    "hidden env by symlink": (["symlink-read", "{ws}/c", ".env"], ["symlink-read", "{ws}/d", "README"]),
    "hidden env written": (["write", "{ws}/.env", "{ws}/.env.local"], ["write", "{ws}/.env.example"]),
    "rename onto hidden": (["rename", "{ws}/README.3", "{ws}/.env.production"], ["rename", "{ws}/README.3", "{ws}/e"]),
    "write outside by path": (["write", "{out}/victim", "{out}/new", "{ws}/../new", "/new"], ["write", "{ws}/new"]),
    "read outside by path": (["read", "{out}/victim"], None),
    "read outside by dotdot": (["dotdot-read", "{ws}", "{out}/victim"], ["dotdot-read", "{ws}", "/etc/passwd"]),
    "write system": (["write", "/usr/x", "/usr/bin/env", "/etc/x", "/etc/passwd", "/bin/sh", "/dev/x"], ["write", "/tmp/x", "/dev/null"]),
    "write outside by symlink": (["symlink-write", "{ws}/f", "{out}/victim"], ["symlink-write", "{ws}/g", "{ws}/target"]),
    "read outside by symlink": (["symlink-read", "{ws}/h", "{out}/victim"], ["symlink-read", "{ws}/i", "/etc/passwd"]),
    "hard link to outside": (["hardlink", "{out}/victim", "{ws}/j"], None),
    "hook": (["write", "{ws}/.git/hooks/post-commit"], ["write", "{ws}/.git/config"]),
    "proc sys": (["proc-sys-write"], ["read", "/proc/self/status"]),
    "sysrq and kcore": (["write", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity"], None),
    "kernel memory": (["read", "/proc/kcore", "/proc/kallsyms-none", "/dev/mem", "/dev/kmsg"], None),
    "kernel timers": (["read", "/proc/timer_list", "/proc/keys"], None),
    "sysfs": (["write", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/pids/release_agent"], None),
    "block device": (["read", "/dev/vda", "/dev/sda", "/dev/nvme0n1"], ["read", "/dev/urandom"]),
    "host socket in workspace": (["unix", "{ws}/host.sock"], ["control-own-unix", "{ws}/own.sock"]),
    "host socket in usr": (["unix", "/usr/local/lib/cofferdam-escape-test.sock"], None),
    "host socket beside": (["unix", "{out}/host.sock"], None),
    "docker socket": (["unix", "/var/run/docker.sock"], None),
    "docker socket in run": (["unix", "/run/docker.sock"], None),
    "host abstract socket": (["abstract", "cofferdam-escape-test"], None),
    "forged whiteout": (["mknod", "char00", "{ws}/k"], None),
    "memory device": (["mknod", "mem", "{ws}/l"], None),
    "memory device in tmp": (["mknod", "mem", "/tmp/l"], None),
    "block node": (["mknod", "block", "{ws}/m"], None),
    "rename with whiteout": (["whiteout-rename", "{ws}/new", "{ws}/new2"], ["rename", "{ws}/new", "{ws}/new3"]),
    "opaque mark": (["xattr", "{ws}/src", "user.overlay.opaque"], None),
    "opaque mark, trusted": (["xattr", "{ws}/src", "trusted.overlay.opaque"], None),
    "own bookkeeping mark": (["xattr", "{ws}/src", "user.cofferdam.owner"], None),
    "set-uid workspace": (["nosuid", "{ws}"], None),
    "set-uid tmp": (["nosuid", "/tmp"], None),
}

PROCESSES = {
    "ptrace process 1": (["ptrace", "1"], ["control-ptrace"]),
    "descriptors of process 1": (["pidfd-getfd", "1"], None),
    "descriptors of process 1 by proc": (["proc-fd", "1"], None),
    "memory of process 1": (["proc-mem", "1"], None),
    "environment of process 1": (["proc-environ", "1"], None),
    "stdout reopened": (["reopen-stdout"], None),
    "inherited descriptors": (["descriptors"], None),
    "capabilities": (["capabilities"], None),
    "new privileges": (["new-privileges"], None),
    "host processes": (["host-processes"], None),
}

NETWORK_SET_UP = {
    "raw socket": (["raw4"], ["control-own-server", "127.0.0.1"]),
    "raw socket, IPv6": (["raw6"], ["control-own-server", "::1"]),
    "packet socket": (["packet"], None),
    "vsock": (["vsock"], None),
    "kernel crypto socket": (["alg"], None),
    "netfilter": (["netlink-netfilter"], None),
    "generic netlink": (["netlink-generic"], None),
    "interface down": (["interface-down"], None),
    "address added": (["add-address"], None),
}

KERNEL = {name: ([name] + extra, None) for name, extra in {
    "mount": [], "remount": [], "umount": ["/tmp"], "fsopen": [], "open-tree": [], "chroot": [], "userns": [], "netns": [],
    "mountns": [], "clone-userns": [], "setns": [], "io-uring": [], "keyctl": [], "add-key": [], "bpf": [], "perf": [],
    "userfaultfd": [], "init-module": [], "open-by-handle": [], "tiocsti": [], "syslog": [], "clock": [], "hostname": [],
    "reboot": [], "setuid": [], "setgroups": [], "foreign-abi": []}.items()}

LOCAL = {**FILES, **PROCESSES, **NETWORK_SET_UP, **KERNEL}

# In the test world (tests/integration/world.py): the far end echoes the path, so CANARY comes back from wherever it
# is reached. Allowed are http://allowed.example, http://to-metadata.example and http://rebind.example.
NETWORK = {
    "literal": (["tcp", "{ip4}", "80"], ["proxy-get", "http://allowed.example/CANARY"]),
    "literal, IPv6": (["tcp", "{ip6}", "80"], ["proxy-get", "http://allowed6.example/CANARY"]),
    "literal through the proxy": (["proxy-get", "http://{ip4}/CANARY"], None),
    "metadata by literal": (["tcp", "169.254.169.254", "80"], None),
    "metadata, mapped": (["tcp", "::ffff:169.254.169.254", "80"], None),
    "metadata, mapped, through the proxy": (["proxy-get", "http://[::ffff:169.254.169.254]/CANARY"], None),
    "metadata by its name": (["proxy-get", "http://metadata.google.internal/CANARY"], None),
    "metadata, decimal": (["proxy-get", "http://2852039166/CANARY"], None),
    "metadata, hexadecimal": (["proxy-get", "http://0xa9fea9fe/CANARY"], None),
    "metadata, octal": (["proxy-get", "http://0251.0376.0251.0376/CANARY"], None),
    "metadata behind an allowed name": (["proxy-get", "http://to-metadata.example/CANARY"], None),
    "name not allowed": (["proxy-get", "http://denied.example/CANARY"], None),
    "name not allowed, resolved": (["resolve", "denied.example"], ["resolve", "allowed.example"]),
    "second answer private": (["after-the-cache", "http://rebind.example/CANARY"],
                              ["proxy-get", "http://rebind.example/CANARY"]),
    "DNS to another server": (["udp", "8.8.8.8", "9999"], None),
    "UDP out": (["udp", "{ip4}", "9999"], None),
    "UDP out, IPv6": (["udp", "{ip6}", "9999"], None),
    "UDP out, bound to the device": (["bind-to-device", "{ip4}", "9999"], None),
    "private network": (["tcp", "10.0.0.5", "80"], None),
    "the host's own address": (["tcp", "{host}", "80"], None),
    "gate asked for itself": (["proxy-get", "http://127.0.0.1:3128/CANARY"], None),
}
