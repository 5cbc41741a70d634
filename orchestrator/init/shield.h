// Views of the host's system trees in which sockets and FIFOs lead nowhere.
#pragma once

#include <string>
#include <vector>

namespace cofferdam::init {

// Mounts over each tree a read-only overlay of itself (Linux 5.11 and newer in a user namespace),
// in prepare's own mount namespace. The overlay's inodes are its own: connect(2) to a socket below
// is refused and a FIFO is a pipe of the sandbox's, whoever made them and whenever. The trees where
// that was done; left out are those with other file systems mounted below them, which would
// disappear, and whatever the kernel refuses. Needs make_staging().
std::vector<std::string> shield_trees(const std::vector<std::string>& trees);

}  // namespace cofferdam::init
