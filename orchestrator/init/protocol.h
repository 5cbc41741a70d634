// The messages of cofferdam-init: packets of an AF_UNIX SOCK_SEQPACKET pair, one JSON object each
// with "type", descriptors by SCM_RIGHTS. What the supervisor receives from pid1 is hostile input.
//
// prepare (S = supervisor, P = prepare)
//   S→P
//   {"type":"prepare","join":false,"mounts":["workspace",…],"tmp_bytes":N,"tmp_exec":B,"shm_bytes":N,
//    "shield":[PATH,…]}
//       join: fds [pidfd]; the network namespace of that process is prepared, no other namespace
//       is made, "mounts" are paths on the host, and "read_only":[B,…] tells how each is mounted.
//   P→S {"type":"unshared"}                       namespaces are made; write the id maps
//   S→P {"type":"mapped"}
//   P→S {"type":"prepared","fuse":N,"gate":M,"shielded":[PATH,…]}
//       fds: N of /dev/fuse in the order of mounts, M sockets
//   S→P {"type":"launch","program":PATH,"command":[…],"files":[SIZE,…],"paths":[PATH,…],
//    "etc":{"binds":[PATH,…],"links":[[PATH,TARGET],…],"files":[PATH,…]}}
//       fds: [options, NUL separated, for the launcher's --args][contents of files, one after the
//       other][write end for --info-fd]
//   P→S {"type":"failed","message":TEXT}          at any time; P ends
//
// pid1 (S = supervisor, I = pid1)
//   S→I {"type":"setup","terminal":B,"pids":N|null,"open_files":N|null,"file_size":N|null,
//        "executables":[PATH,…]}        fds: [seccomp refusals][seccomp allowlist]. The limits of
//                                       each program; executables: none: everything may be executed
//   I→S {"type":"ready"}                fds: [seccomp listener] and, with terminal, [pty master]
//   S→I {"type":"spawn","id":N,"terminal":B}      fds: [fields] and, without terminal, stdin,
//                                                 stdout, stderr. Fields, each ended by NUL: the
//                                                 directory, the number of arguments, the
//                                                 arguments, the environment. The first one with
//                                                 terminal gets that of setup, each further one a
//                                                 terminal of its own:
//   I→S {"type":"terminal","id":N}      fds: [pty master]; before anything is started
//   I→S {"type":"exited","id":N,"status":N} | {"type":"signalled","id":N,"number":N} |
//       {"type":"not_started","id":N,"errno":N}
//   S→I {"type":"signal","id":N,"number":N}       to the process group of that workload
//   S→I {"type":"connect","id":N,"port":N}
//   I→S {"type":"connected","id":N}     fds: [socket] | {"type":"connect_failed","id":N,"errno":N}
//   I→S {"type":"failed","message":TEXT}
#pragma once

#include <cstddef>

namespace cofferdam::init {

// Descriptors of a role at its start.
inline constexpr int kSocketFd = 3;
// Descriptors of the launcher, set up by prepare.
inline constexpr int kLauncherArgsFd = 10;
inline constexpr int kLauncherInfoFd = 11;

// Where prepare stages what the launcher binds; a tmpfs of its own mount namespace.
inline constexpr char kStaging[] = "/run";
inline constexpr char kStagedMounts[] = "/run/mounts";
inline constexpr char kStagedFiles[] = "/run/files";
inline constexpr char kStagedInit[] = "/run/init";
inline constexpr char kStagedEmpty[] = "/run/empty";
inline constexpr char kStagedEtc[] = "/run/etc";
inline constexpr char kStagedNothing[] = "/run/nothing";
inline constexpr char kStagedTmp[] = "/run/tmp";
inline constexpr char kStagedShm[] = "/run/shm";

// Where the workload's side finds process 1, read only.
inline constexpr char kInitInside[] = "/run/cofferdam/init";

// The ports of the gate.
inline constexpr int kDnsPort = 53;
inline constexpr int kExplicitPort = 3128;
inline constexpr int kTransparentPort = 3129;

// A spawn's fields, bytes: argv and environment together are limited by the kernel to 2 MiB or so.
inline constexpr std::size_t kMaxSpawnSpec = 8U << 20U;
// A seccomp program, bytes (4096 instructions of 8 bytes).
inline constexpr std::size_t kMaxSeccompProgram = 4096 * 8;
// Contents of the files placed inside, bytes.
inline constexpr std::size_t kMaxStagedFiles = 64U << 20U;

}  // namespace cofferdam::init
