//! The paths of an operating system that any program needs to run. One that a system does not have is skipped.

/// Read and executed.
pub const READ: &[&str] = &[
    // Programs and libraries; the stores are where some distributions have all of them.
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    // Certificates of authorities. The folders above these may hold the host's own keys.
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/openssl.cnf",
    // Names. The file of name servers is often a link into the second folder, where it is replaced from time to time.
    "/etc/resolv.conf",
    "/run/systemd/resolve",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/nsswitch.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/passwd",
    "/etc/group",
    "/etc/localtime",
    "/etc/timezone",
    // Where it is there, Python's servers of MCP end if they cannot read it.
    "/etc/mime.types",
    // Figures about the machine by which allocators and thread pools choose their sizes.
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/loadavg",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/cap_last_cap",
    "/proc/sys/kernel/ngroups_max",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/max_map_count",
    "/sys/devices/system/cpu",
    "/dev/random",
    "/dev/urandom",
];

/// Also written. Not `/dev/zero`: to map it is to have memory that no limit counts.
pub const WRITE: &[&str] = &["/dev/null", "/dev/full"];
